package usage

import (
	"fmt"
	"strings"
)

// Summary says what a reading found.
type Summary struct {
	Records  uint64 // delivered
	Repeated uint64 // found again with the same content, and not delivered again
	Torn     int    // segments that end in a line that was never finished: nothing acknowledged is in it
	Epochs   []Epoch
	Problems []Problem // the first of them, see DamageError
	Damaged  int       // how many there were in all
}

// Epoch is what was found of one run of one source.
type Epoch struct {
	Source      string
	Epoch       uint64
	First, Last uint64 // sequence numbers; First > 1: the segments before were removed
	Records     uint64
}

// Problem is something in a journal that should not be there, or is not there and should be.
type Problem struct {
	File   string // or folder, where records are missing
	Offset int64  // of the line in the file; -1: not in a file
	What   string
}

func (p Problem) String() string {
	if p.Offset < 0 {
		return p.File + ": " + p.What
	}
	return fmt.Sprintf("%s: byte %d: %s", p.File, p.Offset, p.What)
}

// maxProblems is how many problems are kept to be told.
const maxProblems = 100

// DamageError tells of records that are damaged, missing or contradict each other. All others were delivered.
type DamageError struct {
	Problems []Problem // at most 100
	Damaged  int       // how many there are
}

func (e *DamageError) Error() string {
	lines := make([]string, len(e.Problems), len(e.Problems)+1)
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	if more := e.Damaged - len(e.Problems); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return "the usage journal is damaged: " + strings.Join(lines, "; ")
}

func (s *Summary) problem(file string, offset int64, format string, args ...any) {
	s.Damaged++
	if len(s.Problems) < maxProblems {
		s.Problems = append(s.Problems, Problem{file, offset, fmt.Sprintf(format, args...)})
	}
}

func (s *Summary) err() error {
	if s.Damaged == 0 {
		return nil
	}
	return &DamageError{s.Problems, s.Damaged}
}
