package cmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notifier tells the service manager how far the work is (sd_notify(3)). Where
// there is no service manager (NOTIFY_SOCKET is unset) it does nothing; a
// message that cannot be delivered is logged and never ends the work.
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

func (n notifier) send(lines ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(lines, "\n")); err != nil {
		n.g.log.Warn("notify the service manager", "error", err)
	}
}

// statusLine keeps a status on the one line that the protocol gives it.
func statusLine(status string) string {
	return "STATUS=" + strings.ReplaceAll(status, "\n", " ")
}
