package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
)

const (
	logSuffix  = ".steps"
	stepFormat = "spokegate-policy-step-1"
	maxHead    = 256 // bytes of a step's first line
)

func logName(base uint64) string {
	return strings.TrimSuffix(savedName(base), savedSuffix) + logSuffix
}

// encodeStep is a step as it stands in the log: a line with its revision, its length and its SHA-256, then what changes.
func encodeStep(revision *policyv1.Revision, changed []Resource, removed []Ref) ([]byte, error) {
	body, err := encodeSet(revision, slices.Values(changed), removed)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(body)
	return append(fmt.Appendf(nil, "%s %d %d %x\n", stepFormat, revision.GetNumber(), len(body), sum), body...), nil
}

// follow appends a step to the log. What it could not write whole is taken back, or the next one is written whole elsewhere.
func (k *Keeper) follow(c *Cut, step []byte) (err error) {
	path := filepath.Join(k.dir, logName(k.base))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(step)
	if err == nil && k.steps == 0 {
		err = errors.Join(giveToOwner(k.dir, f), syncDir(k.dir))
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		err = errors.Join(err, f.Truncate(k.steps))
		k.last = nil
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	k.steps += int64(len(step))
	k.last, k.newest = c, c.Revision().GetNumber()
	return nil
}

// logRead is what a log says beyond its base.
type logRead struct {
	cut    *Cut
	newest uint64 // of all steps, also of one whose number cannot be read
	size   int64
	err    error // a step is damaged, or was being written when all ended; cut is from before it
}

// readLog follows a log from its base.
func readLog(path string, base *Cut) logRead {
	out := logRead{cut: base, newest: base.Revision().GetNumber()}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return out
	}
	out.size, out.err = int64(len(data)), err
	for len(data) > 0 {
		var next *Cut
		next, data, err = readStep(out.cut, data)
		if err != nil {
			out.newest = max(out.newest+1, lastNumber(data))
			out.err = fmt.Errorf("%s: damaged: what follows revision %d: %w", path, out.cut.Revision().GetNumber(), err)
			return out
		}
		out.cut, out.newest = next, next.Revision().GetNumber()
	}
	return out
}

// readStep takes the first step, and gives what comes behind it.
func readStep(from *Cut, data []byte) (next *Cut, rest []byte, err error) {
	number, length, sum, body, ok := parseHead(data)
	switch {
	case !ok:
		return nil, nil, errors.New("no step begins there")
	case length > len(body):
		return nil, nil, fmt.Errorf("revision %d is cut off", number)
	}
	body, rest = body[:length], body[length:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], sum) {
		return nil, rest, errors.New("the checksum does not fit")
	}
	s, err := decodeSet(body)
	if err != nil {
		return nil, rest, err
	}
	if s.revision.GetNumber() != number || number <= from.Revision().GetNumber() {
		return nil, rest, fmt.Errorf("it holds revision %d", s.revision.GetNumber())
	}
	next = from.Next(s.revision, s.changed, s.removed)
	if !bytes.Equal(s.revision.GetDigest(), next.Digest()) {
		return nil, rest, errors.New("it does not fit what it follows")
	}
	return next, rest, nil
}

// loggedLast is the highest number of the steps in a log whose base cannot be read; 0: there are none.
func loggedLast(path string) uint64 {
	data, _ := os.ReadFile(path) // what cannot be read says nothing
	return lastNumber(data)
}

// lastNumber is the highest number of the steps in what is left of a log.
func lastNumber(data []byte) (highest uint64) {
	for len(data) > 0 {
		number, length, _, body, ok := parseHead(data)
		if !ok {
			break
		}
		highest, data = max(highest, number), body[min(length, len(body)):]
	}
	return highest
}

// parseHead reads a step's first line. body is all that comes behind it.
func parseHead(data []byte) (number uint64, length int, sum, body []byte, ok bool) {
	line, _, ok := bytes.Cut(data[:min(len(data), maxHead)], []byte("\n"))
	if !ok {
		return 0, 0, nil, nil, false
	}
	var format, digest string
	n, _ := fmt.Sscanf(string(line), "%s %d %d %s", &format, &number, &length, &digest)
	sum, err := hex.DecodeString(digest)
	ok = n == 4 && format == stepFormat && length >= 0 && err == nil && len(sum) == sha256.Size
	return number, length, sum, data[len(line)+1:], ok
}
