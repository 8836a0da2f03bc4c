package cmd

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"
)

// TestInterruptible: a read of a pipe that nobody writes into ends with the context, and what is
// written is read.
func TestInterruptible(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	in := interruptible(ctx, r)
	if _, err := w.WriteString("abc"); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 3)
	if _, err := io.ReadFull(in, got); err != nil || string(got) != "abc" {
		t.Errorf("read %q, error %v", got, err)
	}
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := in.Read(got); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v after the context ended", err)
	}
	w.Close()
	if _, err := interruptible(t.Context(), r).Read(got); err != io.EOF {
		t.Errorf("error %v at the end of the pipe", err)
	}
}
