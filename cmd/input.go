package cmd

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"seedbed/storage"
)

// maxInput bounds a file of references, in bytes.
const maxInput = 16 << 20

// readInput reads a file that the command line names, at most maxInput of it. A FIFO
// that nobody writes into is empty: it is not waited for.
func readInput(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxInput+1))
	if err == nil && len(data) > maxInput {
		return nil, fmt.Errorf("read %q: found more than %d bytes: expected a list of references", path, maxInput)
	}
	return data, err
}

// inputPoll is how often, in milliseconds, a wait for input looks whether it is still wanted.
const inputPoll = 100

// interruptible returns in, whose Read ends with ctx's error when ctx does while it
// waits for more: a read of a pipe or a terminal would go on for ever.
func interruptible(ctx context.Context, in io.Reader) io.Reader {
	if f, ok := in.(*os.File); ok {
		return waitingReader{ctx, f}
	}
	return in
}

type waitingReader struct {
	ctx  context.Context
	file *os.File
}

// Read waits with poll(2), which says of a regular file at once that it can be read.
func (r waitingReader) Read(p []byte) (int, error) {
	for {
		if err := r.ctx.Err(); err != nil {
			return 0, err
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(r.file.Fd()), Events: unix.POLLIN}}, inputPoll)
		if n > 0 || err != nil && err != unix.EINTR {
			return r.file.Read(p)
		}
	}
}

// missingNode is a node that a command needs and the placed layout does not have.
type missingNode struct{ id, layout string }

func (e *missingNode) Error() string {
	return fmt.Sprintf("find node %q: the layout %q that is placed has none", e.id, e.layout)
}

// Hint is the next step.
func (e *missingNode) Hint() string {
	return "name its path with a flag where the command has one, or place a layout with the node: `seedbed storage layout` prints one"
}

// needNodes refuses a manifest that lacks one of the nodes: their paths would be empty.
func needNodes(m *storage.Manifest, ids ...string) error {
	for _, id := range ids {
		if _, err := m.FullPath(id); err != nil {
			return &missingNode{id, m.Layout}
		}
	}
	return nil
}
