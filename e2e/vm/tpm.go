package vm

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
)

// TPMUnable says why a machine cannot have a TPM2 here, or "" when it can.
func TPMUnable() string {
	if _, err := exec.LookPath("swtpm"); err != nil {
		return "a TPM2 needs " + err.Error()
	}
	found, _ := filepath.Glob("/usr/lib/*/libtss2-esys.so.*") // the pattern is well formed
	if len(found) == 0 {
		return "a TPM2 needs libtss2-esys, with which systemd talks to it"
	}
	return ""
}

// startTPM starts an emulated TPM2 with its state in that directory, and returns qemu's arguments for it and how to end
// it. It is handed a socket that listens already, so that qemu never comes too early.
func startTPM(state, socket string) (args []string, end func(), err error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return nil, nil, err
	}
	defer listener.Close()
	listener.SetUnlinkOnClose(false)
	passed, err := listener.File()
	if err != nil {
		return nil, nil, err
	}
	defer passed.Close()
	tpm := exec.Command("swtpm", "socket", "--tpm2", "--tpmstate", "dir="+state, "--ctrl", "type=unixio,fd=3", "--flags", "startup-clear")
	tpm.ExtraFiles = []*os.File{passed}
	if err := tpm.Start(); err != nil {
		return nil, nil, fmt.Errorf("start the TPM2: %w", err)
	}
	end = func() {
		_ = tpm.Process.Kill() // what it seals is on disk at once
		_ = tpm.Wait()
	}
	return []string{"-chardev", "socket,id=tpm,path=" + socket, "-tpmdev", "emulator,id=tpm0,chardev=tpm", "-device", "tpm-tis,tpmdev=tpm0"}, end, nil
}
