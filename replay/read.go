package replay

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// session is what a file of sessions has in a line.
type session struct {
	BlockSize int           `json:"block_size"`
	Requests  []sessionTurn `json:"requests"`
}

// sessionTurn is one request: its blocks are the first Keep ones of the request Base places before it (-1: of none), then New.
type sessionTurn struct {
	T    float64 `json:"t"` // seconds since the session began
	In   int     `json:"in"`
	Out  int     `json:"out"`
	Base int     `json:"base"`
	Keep int     `json:"keep"`
	New  []int32 `json:"new"`
}

// call is what a file of single requests has in a line.
type call struct {
	Timestamp float64 `json:"timestamp"` // milliseconds
	In        int     `json:"input_length"`
	Out       int     `json:"output_length"`
	Hashes    []int32 `json:"hash_ids"`
}

// Read reads a trace: a session a line, or a request a line (512 tokens a block); gzip where the name ends so. An error names
// the file, and the line if one is to blame.
func Read(path string, load Load) (*Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var in io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	t, err := parse(path, in, load)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

func parse(name string, in io.Reader, load Load) (*Trace, error) {
	var sessions []session
	var calls []call
	lines := bufio.NewReader(in)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return nil, err
		}
		if len(strings.TrimSpace(string(line))) > 0 {
			if bad := parseLine(line, &sessions, &calls); bad != nil {
				return nil, fmt.Errorf("line %d: %w", n, bad)
			}
		}
		if err == io.EOF {
			break
		}
	}
	switch {
	case len(sessions) > 0:
		return ofSessions(name, sessions, load)
	case len(calls) > 0:
		return ofCalls(name, calls, load)
	}
	return nil, errors.New("no requests")
}

func parseLine(line []byte, sessions *[]session, calls *[]call) error {
	var both struct {
		session
		call
	}
	if err := json.Unmarshal(line, &both); err != nil {
		return err
	}
	switch {
	case len(both.session.Requests) > 0 && len(*calls) == 0:
		if first := *sessions; len(first) > 0 && first[0].BlockSize != both.BlockSize {
			return fmt.Errorf("block_size %d, but %d before", both.BlockSize, first[0].BlockSize)
		}
		*sessions = append(*sessions, both.session)
		return both.session.check()
	case len(both.Hashes) > 0 && len(*sessions) == 0:
		*calls = append(*calls, both.call)
		return checkSizes(both.call.In, both.call.Out)
	}
	return errors.New("neither a session (block_size, requests) nor a request (timestamp, input_length, output_length, hash_ids), as the lines before are")
}

func (s *session) check() error {
	if s.BlockSize < 1 || s.BlockSize > maxTokens {
		return fmt.Errorf("block_size %d", s.BlockSize)
	}
	lengths := make([]int, len(s.Requests))
	for i, q := range s.Requests {
		if err := checkSizes(q.In, q.Out); err != nil {
			return fmt.Errorf("request %d: %w", i+1, err)
		}
		if q.T < 0 || i > 0 && q.T < s.Requests[i-1].T {
			return fmt.Errorf("request %d goes back in time", i+1)
		}
		if q.Base >= 0 {
			if at := i - q.Base; at < 0 || at == i || q.Keep < 0 || q.Keep > lengths[at] {
				return fmt.Errorf("request %d keeps %d blocks of one that does not have them", i+1, q.Keep)
			}
			lengths[i] = q.Keep
		}
		lengths[i] += len(q.New)
		if lengths[i] == 0 || lengths[i] > maxTokens {
			return fmt.Errorf("request %d has %d blocks", i+1, lengths[i])
		}
	}
	return nil
}

// maxTokens of a prompt or an answer: more is a mistake.
const maxTokens = 1 << 27

func checkSizes(in, out int) error {
	if in < 1 || in > maxTokens || out < 0 || out > maxTokens {
		return fmt.Errorf("%d tokens in, %d out", in, out)
	}
	return nil
}
