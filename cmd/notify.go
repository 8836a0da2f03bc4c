package cmd

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// notifier tells the service manager how far the work is (sd_notify(3)). Where
// there is no service manager (NOTIFY_SOCKET is unset) it does nothing; a
// message that cannot be delivered never ends the work; the first one is logged.
type notifier struct{ g *globals }

// Ready says, once, that the job is done or the service serves.
func (n notifier) Ready(status string) { n.send(daemon.SdNotifyReady, statusLine(status)) }

// Status says what is being done now.
func (n notifier) Status(status string) { n.send(statusLine(status)) }

// Failed says why the job is not done, for `systemctl status`.
func (n notifier) Failed(err error) {
	if text := oneLine(err); text != "" {
		n.Status(text)
	}
}

// Stopping says that the end has begun.
func (n notifier) Stopping() { n.send(daemon.SdNotifyStopping) }

// Extend asks for d more before a start or stop counts as timed out.
func (n notifier) Extend(d time.Duration) {
	n.send(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds()))
}

// Watchdog returns how often Alive has to be called, 0 for never
// (sd_watchdog_enabled(3)).
func (n notifier) Watchdog() time.Duration {
	interval, err := daemon.SdWatchdogEnabled(true)
	if err != nil {
		n.g.log.Warn("read the watchdog's interval", "error", err)
	}
	return interval
}

// Alive says that the service works.
func (n notifier) Alive() { n.send(daemon.SdNotifyWatchdog) }

// Keep gives the service manager a descriptor to keep over a restart of the unit, where
// FileDescriptorStoreMax= lets it; it comes back among the passed ones, with that name.
func (n notifier) Keep(name string, f *os.File) {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return
	}
	if err := sendFile(socket, "FDSTORE=1\nFDNAME="+name, f); err != nil {
		n.complain("have a descriptor kept", err)
	}
}

// sendFile sends a message with a descriptor, which go-systemd has no way for.
func sendFile(socket, message string, f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	out, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(out)
	var failed error
	err = raw.Control(func(fd uintptr) {
		to := &unix.SockaddrUnix{Name: socket}
		failed = unix.Sendmsg(out, []byte(message), unix.UnixRights(int(fd)), to, unix.MSG_NOSIGNAL)
	})
	return errors.Join(err, os.NewSyscallError("sendmsg", failed))
}

func (n notifier) send(lines ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(lines, "\n")); err != nil {
		n.complain("notify the service manager", err)
	}
}

// complain logs why a message was not delivered, for the first of them: the others fail alike, and there is one for
// each second of work.
func (n notifier) complain(what string, err error) {
	n.g.unheard.Do(func() { n.g.log.Warn(what, "error", err) })
}

// statusLine keeps a status on the one line that the protocol gives it.
func statusLine(status string) string {
	return "STATUS=" + strings.ReplaceAll(status, "\n", " ")
}
