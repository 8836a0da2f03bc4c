package archive

import (
	"os"
	"slices"
	"sync"
)

// Files bounds how many archives have their file open at a time, so that a
// thousand of them need no thousand file descriptors. The one that was read
// longest ago is closed for another. When it is read again it is opened again,
// and has to be the file that it was.
type Files struct {
	limit int

	mu   sync.Mutex
	open []*handle // the one that was read longest ago first; guarded by mu
}

// NewFiles returns Files of which limit are open, and more only while more are
// read at once.
func NewFiles(limit int) *Files { return &Files{limit: limit} }

// handle is an archive's file, open or not.
type handle struct {
	files *Files
	was   watched
	file  *os.File // nil when it is not open; guarded by files.mu
	busy  int      // reads that are under way; guarded by files.mu
}

// adopt takes over a file that is open.
func (f *Files) adopt(file *os.File, was watched) *handle {
	h := &handle{files: f, was: was, file: file}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = append(f.open, h)
	f.shrink()
	return h
}

// shrink closes what is open beyond the limit and not being read. The error of
// closing a file that was only read says nothing.
func (f *Files) shrink() {
	for n := 0; n < len(f.open) && len(f.open) > f.limit; {
		h := f.open[n]
		if h.busy > 0 {
			n++
			continue
		}
		h.file.Close()
		h.file, f.open = nil, slices.Delete(f.open, n, n+1)
	}
}

// forget takes a handle off the list of those that are open.
func (f *Files) forget(h *handle) {
	if n := slices.Index(f.open, h); n >= 0 {
		f.open = slices.Delete(f.open, n, n+1)
	}
}

// ReadAt implements io.ReaderAt for several goroutines at once. The error is an
// [*Error] with CodeChangedWhileReading when another file lies there now.
func (h *handle) ReadAt(p []byte, off int64) (int, error) {
	file, err := h.take()
	if err != nil {
		return 0, err
	}
	defer h.give()
	return file.ReadAt(p, off)
}

// take returns the file, which stays open until give.
func (h *handle) take() (*os.File, error) {
	f := h.files
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.file == nil {
		if err := h.reopen(); err != nil {
			return nil, err
		}
	}
	f.forget(h)
	f.open = append(f.open, h)
	h.busy++
	f.shrink()
	return h.file, nil
}

func (h *handle) reopen() error {
	file, now, err := open(h.was.path)
	if err != nil {
		return h.was.gone(err)
	}
	if err := h.was.same(now.info); err != nil {
		file.Close()
		return err
	}
	h.file = file
	return nil
}

func (h *handle) give() {
	h.files.mu.Lock()
	defer h.files.mu.Unlock()
	h.busy--
	h.files.shrink()
}

// Close closes the file if it is open. Nothing may be read after it.
func (h *handle) Close() error {
	h.files.mu.Lock()
	defer h.files.mu.Unlock()
	if h.file == nil {
		return nil
	}
	h.files.forget(h)
	file := h.file
	h.file = nil
	return file.Close()
}
