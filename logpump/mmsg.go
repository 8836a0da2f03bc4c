package logpump

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// message is struct mmsghdr of sendmmsg(2).
type message struct {
	header unix.Msghdr
	length uint32
}

// messages are datagrams that lie one after the other in one buffer.
type messages struct {
	spans   [][2]int
	vectors []unix.Iovec
	headers []message
}

func (m *messages) reset() { m.spans = m.spans[:0] }

func (m *messages) add(from, to int) { m.spans = append(m.spans, [2]int{from, to}) }

// fix makes the kernel's view of the messages in buf, which must not move after it.
func (m *messages) fix(buf []byte) {
	if n := len(m.spans); n > len(m.vectors) {
		m.vectors, m.headers = make([]unix.Iovec, n), make([]message, n)
	}
	for i, span := range m.spans {
		v, h := &m.vectors[i], &m.headers[i].header
		v.Base = &buf[span[0]]
		v.SetLen(span[1] - span[0])
		h.Iov = v
		h.SetIovlen(1)
	}
}

func (m *messages) bytes(buf []byte, i int) []byte { return buf[m.spans[i][0]:m.spans[i][1]] }

// send sends messages, from the given number on, and returns how many were sent; an
// error is that of the first one.
func (m *messages) send(fd, from int) (int, error) {
	todo := m.headers[from:len(m.spans)]
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&todo[0])), uintptr(len(todo)), unix.MSG_NOSIGNAL, 0, 0)
	runtime.KeepAlive(m)
	if errno != 0 {
		return 0, os.NewSyscallError("sendmmsg", errno)
	}
	return int(n), nil
}
