package archive

import (
	"context"
	"io"
)

// aheadBuffers is how many buffers of copyBuffer bytes are read ahead: what is
// decompressed while a store syncs a blob.
const aheadBuffers = 8

// ahead reads in a goroutine of its own, so that decompressing goes on while
// what was read is worked on.
type ahead struct {
	source io.ReadCloser
	stop   context.CancelFunc
	full   chan chunk  // closed after the last; has room for all buffers
	empty  chan []byte // buffers to fill
	now    chunk
	rest   []byte // of now, not handed out yet
}

// chunk is a buffer that was filled, and the error that came after its data.
type chunk struct {
	buffer, data []byte
	err          error
}

// readAhead begins to read source, which Close closes.
func readAhead(ctx context.Context, source io.ReadCloser) *ahead {
	ctx, stop := context.WithCancel(ctx)
	a := &ahead{source: source, stop: stop, full: make(chan chunk, aheadBuffers), empty: make(chan []byte, aheadBuffers)}
	for range aheadBuffers {
		a.empty <- nil // made when it is needed
	}
	go a.fill(ctx)
	return a
}

func (a *ahead) fill(ctx context.Context) {
	defer close(a.full)
	for {
		var buffer []byte
		select {
		case buffer = <-a.empty:
		case <-ctx.Done():
			return
		}
		if buffer == nil {
			buffer = make([]byte, copyBuffer)
		}
		n, err := io.ReadFull(a.source, buffer)
		if err == io.ErrUnexpectedEOF {
			err = io.EOF // fewer bytes than the buffer holds; a decompressor's own error is an [*Error]
		}
		a.full <- chunk{buffer: buffer, data: buffer[:n], err: err}
		if err != nil {
			return
		}
	}
}

// Read implements io.Reader.
func (a *ahead) Read(p []byte) (int, error) {
	for len(a.rest) == 0 {
		if a.now.err != nil {
			return 0, a.now.err
		}
		if a.now.buffer != nil {
			a.empty <- a.now.buffer
		}
		next, ok := <-a.full
		if !ok {
			next.err = context.Canceled
		}
		a.now, a.rest = next, next.data
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

// Close ends the reading and waits for its end. A source that blocks, standard
// input say, is waited for.
func (a *ahead) Close() error {
	a.stop()
	for range a.full {
	}
	return a.source.Close()
}
