package storage

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// writingCalls change a file system, as strace names them; open is among them for its flags.
const writingCalls = "?write,?pwrite64,?writev,?pwritev,?pwritev2,?copy_file_range,?sendfile,?splice," +
	"?open,openat,openat2,?creat,?mkdir,mkdirat,?mknod,mknodat,?symlink,symlinkat,?link,linkat,?unlink,unlinkat,?rmdir,?rename,?renameat,renameat2," +
	"?chmod,fchmod,fchmodat,?fchmodat2,?chown,fchown,?lchown,fchownat,?utime,?utimes,utimensat,?futimesat,truncate,ftruncate,fallocate," +
	"setxattr,lsetxattr,fsetxattr,removexattr,lremovexattr,fremovexattr,mount,umount2,move_mount,fsmount,fsync,fdatasync,sync,syncfs"

// TestS08NoSystemCallWrites traces a whole process. The first run shows that the trace would see it.
func TestS08NoSystemCallWrites(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("strace is not installed")
	}
	root := filepath.Join(t.TempDir(), "root")
	first, second := writes(t, root), writes(t, root)
	if len(first) < 10 {
		t.Errorf("the first run: %d calls that write: expected more", len(first))
	}
	if len(second) > 0 {
		t.Errorf("the second run: %d calls that write: expected none:\n%s", len(second), strings.Join(second, "\n"))
	}
}

// writes places the layout node in a process of its own and returns its calls that write.
func writes(t *testing.T, root string) []string {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	trace := filepath.Join(t.TempDir(), "trace")
	c := exec.Command("strace", "-f", "-qq", "-y", "-e", "signal=none", "-e", "trace="+writingCalls, "-o", trace, self)
	c.Env = append(os.Environ(), "SEEDBED_TEST_PLACE="+root, "SEEDBED_TEST_LAYOUT=node")
	if out, err := c.CombinedOutput(); err != nil {
		if strings.Contains(string(out), "ptrace") {
			t.Skipf("strace may not trace here: %s", out)
		}
		t.Fatalf("strace: %v: %s", err, out)
	}
	data, err := os.ReadFile(trace)
	must(t, err)
	opens := regexp.MustCompile(`^\d+ +open`)
	harmless := regexp.MustCompile(`O_(RDONLY|PATH)|/dev/null`)
	anonymous := regexp.MustCompile(`^\d+ +p?write\w*\(\d+<(anon_inode:|pipe:|/dev/|/proc/)`)
	var calls []string
	for call := range strings.Lines(string(data)) {
		switch {
		case anonymous.MatchString(call), strings.Contains(call, "resumed>"), strings.Contains(call, "+++"):
		case opens.MatchString(call) && harmless.MatchString(call) && !strings.Contains(call, "O_CREAT"):
		default:
			calls = append(calls, strings.TrimSpace(call))
		}
	}
	return calls
}
