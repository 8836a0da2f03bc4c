package systemd

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// console is the machine's terminal: systemd writes its log of the boot only to a terminal. What is written to it is kept.
type console struct {
	master, slave *os.File

	mu   sync.Mutex
	text bytes.Buffer
	done chan struct{} // closed when the reader ended
}

// openConsole makes a pseudo-terminal (pty(7)) and starts its reader, which Close ends.
func openConsole() (*console, error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/dev/ptmx", Err: err}
	}
	master := os.NewFile(uintptr(fd), "/dev/ptmx")
	slave, err := openSlave(fd)
	if err != nil {
		return nil, errors.Join(err, master.Close())
	}
	c := &console{master: master, slave: slave, done: make(chan struct{})}
	go c.read()
	return c, nil
}

func openSlave(master int) (*os.File, error) {
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return nil, fmt.Errorf("unlock terminal: %w", err)
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return nil, fmt.Errorf("number of terminal: %w", err)
	}
	return os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
}

// read keeps what comes until the terminal is closed. The slave that c holds open keeps the end of one writer from being
// the end of the terminal.
func (c *console) read() {
	defer close(c.done)
	buffer := make([]byte, 4096)
	for {
		n, err := c.master.Read(buffer)
		c.mu.Lock()
		c.text.Write(bytes.ReplaceAll(buffer[:n], []byte("\r\n"), []byte("\n")))
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// String returns what was written so far.
func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// Close ends the reader and returns when it is gone.
func (c *console) Close() error {
	err := errors.Join(c.slave.Close(), c.master.Close())
	<-c.done
	return err
}
