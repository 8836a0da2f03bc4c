package logpump

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// journalSocket is where journald takes entries in its native protocol
// (https://systemd.io/JOURNAL_NATIVE_PROTOCOL/).
const journalSocket = "/run/systemd/journal/socket"

// sendTimeout bounds one wait for a receiver that has stopped reading.
const sendTimeout = 100 * time.Millisecond

// journal sends records to journald. It has its own encoder instead of go-systemd's
// journal.Send because that one allocates a buffer and resolves the address for
// every record, and cannot be told to give up. A batch goes out with one sendmmsg(2) from a buffer
// that is used again: a write(2) each takes as much CPU for a record, but a receiver that
// is asked for room record by record is slower to give it.
type journal struct {
	path       string
	identifier string
	fd         int       // -1 until it is connected
	buf        []byte    // the encoded records of a batch
	headers    []message // of Send
	messages   messages
}

// NewJournal returns a sink that makes an entry of the systemd journal of each
// record, with the given SYSLOG_IDENTIFIER. It fails when no journald listens on
// this machine; later on, Send reconnects by itself.
func NewJournal(identifier string) (Sink, error) {
	return newJournal(journalSocket, identifier)
}

func newJournal(path, identifier string) (Sink, error) {
	j := &journal{path: path, identifier: cleanText(identifier), fd: -1}
	if err := j.connect(); err != nil {
		return nil, fmt.Errorf("connect to journald: %w", err)
	}
	return j, nil
}

// connect connects, because only then does the kernel wake up a sender that waits for room
// in the receiver's queue.
func (j *journal) connect() error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	timeout := unix.NsecToTimeval(sendTimeout.Nanoseconds())
	err = os.NewSyscallError("setsockopt", unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout))
	if err == nil {
		err = os.NewSyscallError("connect", unix.Connect(fd, &unix.SockaddrUnix{Name: j.path}))
	}
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	j.fd = fd
	return nil
}

// Send sends one datagram for each record. A journald that is not there is as busy as one
// that does not read.
func (j *journal) Send(records []Record) (int, error) {
	return j.sendMarked(records, j.headers)
}

// sendMarked is a marker's: the kernel marks each message that is with journald.
func (j *journal) sendMarked(records []Record, marks []message) (int, error) {
	j.buf = j.buf[:0]
	j.messages.reset(marks)
	for _, r := range records {
		from := len(j.buf)
		j.encode(r)
		j.messages.add(from, len(j.buf))
	}
	j.messages.fix(j.buf)
	if marks == nil {
		j.headers = j.messages.headers
	}
	sent, err := 0, error(nil)
	for sent < len(records) && err == nil {
		var n int
		n, err = j.send(sent)
		sent += n
	}
	return sent, err
}

// send sends some of the messages, beginning with that number, and returns how many.
func (j *journal) send(from int) (int, error) {
	if j.fd < 0 && j.connect() != nil {
		return 0, ErrBusy
	}
	n, err := j.messages.send(j.fd, from)
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, unix.EINTR):
		return 0, nil
	case errors.Is(err, unix.EAGAIN):
		return 0, ErrBusy
	case errors.Is(err, unix.EMSGSIZE), errors.Is(err, unix.ENOBUFS):
		return j.sendFile(from)
	}
	// journald's socket was made anew, or is gone.
	_ = j.Close()
	if j.connect() != nil {
		return 0, ErrBusy
	}
	if n, err = j.messages.send(j.fd, from); errors.Is(err, unix.EAGAIN) {
		err = ErrBusy
	}
	return n, err
}

// sendFile passes an entry that is too long for a datagram in a sealed file.
func (j *journal) sendFile(i int) (int, error) {
	fd, err := unix.MemfdCreate("journal-entry", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return 0, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "journal-entry")
	defer f.Close()
	if _, err := f.Write(j.messages.bytes(j.buf, i)); err != nil {
		return 0, err
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return 0, os.NewSyscallError("fcntl", err)
	}
	n, err := j.messages.sendFile(j.fd, i, fd)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return 0, ErrBusy
	case errors.Is(err, unix.EINTR):
		return 0, nil
	}
	return n, err
}

// encode appends r to the buffer in journald's native format. Fields whose
// name journald would refuse are left out.
func (j *journal) encode(r Record) {
	j.buf = appendField(j.buf, "SYSLOG_IDENTIFIER", j.identifier)
	j.buf = append(j.buf, "PRIORITY="...)
	j.buf = strconv.AppendInt(j.buf, int64(min(max(r.Priority, 0), Debug)), 10)
	j.buf = append(j.buf, '\n')
	if !r.Time.IsZero() {
		j.buf = append(j.buf, "SYSLOG_TIMESTAMP="...)
		j.buf = r.Time.AppendFormat(j.buf, time.RFC3339Nano)
		j.buf = append(j.buf, '\n')
	}
	for _, f := range r.Fields {
		if validFieldName(f.Name) {
			j.buf = appendField(j.buf, f.Name, f.Value)
		}
	}
	j.buf = appendField(j.buf, "MESSAGE", r.Message)
}

// appendField appends one field; a value with newlines is written with its length.
func appendField(b []byte, name, value string) []byte {
	b = append(b, name...)
	if strings.IndexByte(value, '\n') < 0 {
		b = append(b, '=')
	} else {
		b = append(b, '\n')
		b = binary.LittleEndian.AppendUint64(b, uint64(len(value)))
	}
	b = append(b, value...)
	return append(b, '\n')
}

func (j *journal) Close() error {
	if j.fd < 0 {
		return nil
	}
	err := os.NewSyscallError("close", unix.Close(j.fd))
	j.fd = -1
	return err
}
