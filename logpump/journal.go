package logpump

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// journalSocket is where journald takes entries in its native protocol
// (https://systemd.io/JOURNAL_NATIVE_PROTOCOL/).
const journalSocket = "/run/systemd/journal/socket"

// sendTimeout bounds how long one record may wait for a journald that has
// stopped reading; then it is dropped, so that a writer is never held up for long.
const sendTimeout = 5 * time.Second

// journal sends records to journald. It has its own encoder instead of
// go-systemd's journal.Send because that one allocates a buffer and resolves the
// address for every record, and cannot be told to give up.
type journal struct {
	path       string
	identifier string
	conn       *net.UnixConn // nil until the first record and after an error
	buf        []byte
}

// NewJournal returns a sink that makes an entry of the systemd journal of each
// record, with the given SYSLOG_IDENTIFIER. It fails when no journald listens on
// this machine; later on, Send reconnects by itself.
func NewJournal(identifier string) (Sink, error) {
	return newJournal(journalSocket, identifier)
}

func newJournal(path, identifier string) (Sink, error) {
	j := &journal{path: path, identifier: cleanText(identifier)}
	if err := j.connect(); err != nil {
		return nil, fmt.Errorf("connect to journald: %w", err)
	}
	return j, nil
}

func (j *journal) connect() error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: j.path, Net: "unixgram"})
	if err != nil {
		return err
	}
	j.conn = conn
	return nil
}

// Send sends one datagram. The socket is connected, because only then does the
// kernel wake up a sender that waits for room in the receiver's queue.
func (j *journal) Send(r Record) error {
	j.encode(r)
	err := j.write()
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	// journald's socket was made anew.
	return j.write()
}

func (j *journal) write() error {
	if j.conn == nil {
		if err := j.connect(); err != nil {
			return err
		}
	}
	err := j.conn.SetWriteDeadline(time.Now().Add(sendTimeout))
	if err == nil {
		_, err = j.conn.Write(j.buf)
	}
	if errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.ENOBUFS) {
		err = j.writeMemfd()
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		err = errors.Join(err, j.Close())
	}
	return err
}

// writeMemfd passes an entry that is too long for a datagram in a sealed file.
func (j *journal) writeMemfd() error {
	fd, err := unix.MemfdCreate("journal-entry", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "journal-entry")
	defer f.Close()
	if _, err := f.Write(j.buf); err != nil {
		return err
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	return j.sendRights(unix.UnixRights(fd))
}

// sendRights sends an empty datagram with rights; net refuses to do that on a
// connected socket.
func (j *journal) sendRights(rights []byte) error {
	raw, err := j.conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		failed = unix.Sendmsg(int(fd), nil, rights, nil, unix.MSG_NOSIGNAL)
		return !errors.Is(failed, unix.EAGAIN)
	})
	return errors.Join(err, os.NewSyscallError("sendmsg", failed))
}

// encode fills the reused buffer with r in journald's native format. Fields whose
// name journald would refuse are left out.
func (j *journal) encode(r Record) {
	j.buf = appendField(j.buf[:0], "SYSLOG_IDENTIFIER", j.identifier)
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
	if j.conn == nil {
		return nil
	}
	err := j.conn.Close()
	j.conn = nil
	return err
}
