package logpump

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// spoolMagic begins a spool; its last byte is the version of the form.
const spoolMagic = "sbspool\x02"

// What stands before the bytes in a store: the magic, and at these places
const (
	spanAt    = 8    // where the bytes begin and end, 32 bits each
	batchAt   = 16   // how many messages are being handed over; batchMarked with marks
	doubtAt   = 24   // how many of the first records a predecessor may have handed over
	staleAt   = 32   // up to where bytes behind the end are left over from a move that is under way; 0 for none
	endsAt    = 64   // for each of them where the bytes of the next begin, 32 bits
	marksAt   = 4096 // for each of them its message, whose length is its mark
	storeHead = 12288
)

// batchMarked in the word at batchAt says that there are marks.
const batchMarked = 1 << 32

// ErrSpoolInUse says that another pump has the spool open, and so reads the same FIFO.
var ErrSpoolInUse = errors.New("another pump has it")

// store is the memory between the FIFO and the sink. With a file behind it, it outlives
// the process: a successor finds the bytes that were not handed over.
//
// What a kill at any moment leaves must be whole, so the order of writes counts. The
// span, where the bytes begin and end, is one word and changes at once. What lies
// behind its end is zero: bytes that a read(2) has brought in, and that the process was
// killed before it could count, are told by that. What of a batch the receiver has, the kernel marks
// as it puts it into the receiver's queue, if the sink is a marker; else all of the batch is in doubt.
type store struct {
	file  *os.File // nil without a spool
	mem   []byte
	bytes []byte // mem without the head
}

// newStore returns memory for n bytes, of the file at path if that is not empty.
func newStore(path string, n int) (*store, error) {
	if path == "" {
		mem, err := unix.Mmap(-1, 0, storeHead+n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return nil, os.NewSyscallError("mmap", err)
		}
		return &store{mem: mem, bytes: mem[storeHead:]}, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	s, err := mapSpool(f, n)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open spool %q: %w", path, err), f.Close())
	}
	return s, nil
}

// mapSpool locks the file, gives it its size, and maps it. All of its blocks are
// taken now: writing into a mapping of a full file system would kill the process.
func mapSpool(f *os.File, n int) (*store, error) {
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, ErrSpoolInUse
	case err != nil:
		return nil, os.NewSyscallError("flock", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("it is a %s", kind(info.Mode()))
	}
	size := int64(storeHead + n)
	if info.Size() != size {
		// Made with other options; what is in it cannot be read with these.
		if err := f.Truncate(0); err != nil {
			return nil, err
		}
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err != nil {
		return nil, os.NewSyscallError("fallocate", err)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	s := &store{file: f, mem: mem, bytes: mem[storeHead:]}
	if string(mem[:len(spoolMagic)]) != spoolMagic {
		clear(mem)
		copy(mem, spoolMagic)
	}
	return s, nil
}

func (s *store) word(at int) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&s.mem[at])) }

// span returns where the bytes begin and end.
func (s *store) span() (start, end int) {
	v := s.word(spanAt).Load()
	return int(v >> 32), int(v & (1<<32 - 1))
}

// setSpan says where the bytes begin and end.
func (s *store) setSpan(start, end int) { s.word(spanAt).Store(uint64(start)<<32 | uint64(end)) }

func (s *store) ends() []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(&s.mem[endsAt])), batchSize+1)
}

// marks are the messages of a batch, which a marker uses.
func (s *store) marks() []message {
	return unsafe.Slice((*message)(unsafe.Pointer(&s.mem[marksAt])), batchSize+1)
}

// beginBatch says that n messages are being handed over, which end where the last of places do.
func (s *store) beginBatch(places []splitter, n int, marked bool) {
	ends, marks := s.ends(), s.marks()
	others := n - (len(places) - 1) // in front, of no bytes
	for i := range n {
		ends[i] = uint32(places[max(0, i-others+1)].off)
		marks[i].length = unsent
	}
	state := uint64(n)
	if marked {
		state |= batchMarked
	}
	s.word(batchAt).Store(state)
}

// endBatch says that nothing is being handed over.
func (s *store) endBatch() { s.word(batchAt).Store(0) }

// setDoubt says how many of the first records may be with the receiver already.
func (s *store) setDoubt(n int) { s.word(doubtAt).Store(uint64(n)) }

// recover returns the bytes that a killed predecessor left, and how many of their
// first records it may have handed over.
func (s *store) recover() (start, end, doubt int) {
	start, end = s.span()
	if start > end || end > len(s.bytes) {
		clear(s.bytes) // not what this program writes
		s.setSpan(0, 0)
		s.setDoubt(0)
		s.endBatch()
		return 0, 0, 0
	}
	if stale := int(s.word(staleAt).Load()); stale > end {
		s.wipe(end, min(stale, len(s.bytes)))
	}
	s.word(staleAt).Store(0)
	for i := min(end+readSize, len(s.bytes)); i > end; i-- {
		if s.bytes[i-1] != 0 {
			end = i
			break
		}
	}
	start, doubt = s.recoverBatch(start, end)
	doubt = min(max(doubt, int(s.word(doubtAt).Load())), batchSize)
	if start == end {
		doubt = 0
	}
	s.setSpan(start, end)
	s.setDoubt(doubt)
	s.endBatch()
	return start, end, doubt
}

// recoverBatch returns where what was not handed over begins, and how many records of it
// are in doubt.
func (s *store) recoverBatch(start, end int) (begin, doubt int) {
	state := s.word(batchAt).Load()
	ends, marks := s.ends(), s.marks()
	n := min(int(state&(batchMarked-1)), len(ends))
	for i := range n {
		at := int(ends[i])
		switch {
		case at <= start || at > end:
		case state&batchMarked == 0:
			doubt++
		case marks[i].length != unsent:
			start = at
		}
	}
	return start, doubt
}

// move moves the bytes of the span, from to end, to the beginning, where they must not overlap their old place: so a
// kill in between loses nothing. What they leave behind is made zero, and known as stale until it is.
func (s *store) move(from, end int) {
	kept := end - from
	copy(s.bytes, s.bytes[from:end])
	s.word(staleAt).Store(uint64(end))
	s.setSpan(0, kept)
	s.wipe(kept, end)
	s.word(staleAt).Store(0)
}

// wipe makes bytes zero that are no longer used.
func (s *store) wipe(from, to int) {
	if s.file != nil {
		clear(s.bytes[from:to])
	}
}

// release gives memory back to the kernel that only a backlog has needed.
func (s *store) release() {
	if s.file == nil {
		_ = unix.Madvise(s.bytes, unix.MADV_DONTNEED)
	}
}

func (s *store) close() error {
	err := os.NewSyscallError("munmap", unix.Munmap(s.mem))
	if s.file != nil {
		err = errors.Join(err, s.file.Close())
	}
	return err
}
