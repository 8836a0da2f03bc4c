package archive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the memory in bytes of the zstd decoder. The zstd command
// stays below it at all its levels unless --long is asked for.
const maxWindow = 64 << 20

// decompress returns what r is around. Its errors say what is wrong with the
// stream in words.
func decompress(r io.Reader, c Compression) (io.ReadCloser, error) {
	switch c {
	case Gzip:
		z, err := gzip.NewReader(bufio.NewReaderSize(r, copyBuffer))
		if err != nil {
			return nil, streamError(err, c)
		}
		return translated{z, c}, nil
	case Zstd:
		z, err := zstd.NewReader(r, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, streamError(err, c)
		}
		return translated{z.IOReadCloser(), c}, nil
	}
	return io.NopCloser(r), nil
}

// translated gives the errors of a decoder in our words.
type translated struct {
	io.ReadCloser
	c Compression
}

func (t translated) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = streamError(err, t.c)
	}
	return n, err
}

func streamError(err error, c Compression) error {
	var path *fs.PathError
	switch {
	case errors.As(err, &path), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return &Error{
			Code: CodeTruncated, Found: fmt.Sprintf("the %s stream ends in the middle", c), Expected: "its end mark",
			Advice: "it was not copied to its end: fetch or write it again",
		}
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return &Error{
			Code: CodeUnsupportedCompression, Found: "zstd with a larger window", Expected: fmt.Sprintf("a window of at most %d MiB", maxWindow>>20),
			Advice: "compress it without --long", Err: err,
		}
	}
	return &Error{
		Code: CodeDigestMismatch, Found: fmt.Sprintf("the %s stream is damaged", c), Expected: "data that fits its checksum",
		Advice: "fetch or write it again, and check the disk that it came from", Err: err,
	}
}
