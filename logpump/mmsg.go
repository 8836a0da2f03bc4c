package logpump

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// message is struct mmsghdr of sendmmsg(2). It has no Go pointers, for it may lie in
// memory that Go's collector does not know and that an earlier process has written.
type message struct {
	header header
	// length is written by the kernel once the message is in the receiver's queue, before
	// anything else can happen to the process.
	length uint32
}

// header is struct msghdr of sendmsg(2).
type header struct {
	name       uintptr
	nameLen    uint32
	vectors    uintptr
	count      uintptr
	control    uintptr
	controlLen uintptr
	flags      int32
}

// unsent is the length of a message that is not in the receiver's queue; none is that long.
const unsent = ^uint32(0)

// messages are datagrams that lie one after the other in one buffer.
type messages struct {
	spans   [][2]int
	vectors []unix.Iovec
	headers []message
	rights  []byte // the control message of one that passes a file
}

// reset begins anew, with the headers where they are wanted, or in memory of its own if that is nil.
func (m *messages) reset(headers []message) {
	m.spans, m.headers = m.spans[:0], headers
}

func (m *messages) add(from, to int) { m.spans = append(m.spans, [2]int{from, to}) }

// fix makes the kernel's view of the messages in buf, which must not move after it.
func (m *messages) fix(buf []byte) {
	n := len(m.spans)
	if n > len(m.vectors) {
		m.vectors = make([]unix.Iovec, n)
	}
	if n > len(m.headers) {
		m.headers = make([]message, n)
	}
	for i, span := range m.spans {
		v, h := &m.vectors[i], &m.headers[i]
		v.Base = &buf[span[0]]
		v.SetLen(span[1] - span[0])
		h.header = header{vectors: uintptr(unsafe.Pointer(v)), count: 1}
		h.length = unsent
	}
}

func (m *messages) bytes(buf []byte, i int) []byte { return buf[m.spans[i][0]:m.spans[i][1]] }

// send sends messages, from the given number on, and returns how many were sent; an
// error is that of the first one. What fix was given must still be there.
func (m *messages) send(fd, from int) (int, error) {
	return m.sendSome(fd, m.headers[from:len(m.spans)])
}

// sendFile sends a file in the place of one message.
func (m *messages) sendFile(fd, i, file int) (int, error) {
	m.rights = unix.UnixRights(file)
	m.headers[i].header = header{control: uintptr(unsafe.Pointer(&m.rights[0])), controlLen: uintptr(len(m.rights))}
	return m.sendSome(fd, m.headers[i:i+1])
}

func (m *messages) sendSome(fd int, todo []message) (int, error) {
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&todo[0])), uintptr(len(todo)), unix.MSG_NOSIGNAL, 0, 0)
	runtime.KeepAlive(m)
	if errno != 0 {
		return 0, os.NewSyscallError("sendmmsg", errno)
	}
	return int(n), nil
}
