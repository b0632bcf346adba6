package usage

import (
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
)

// MaxLine is the longest line of a segment in bytes, its line feed included. A record that needs more is counted as lost.
// It is far below what Kafka takes as one message by default (1 MiB).
const MaxLine = 64 << 10

// sumLen is the length of a line's check sum and the space behind it.
const sumLen = 9

var (
	errNoSum  = errors.New("no check sum at the start of the line")
	errBadSum = errors.New("the check sum does not fit the line")
)

// castagnoli makes CRC-32C, which processors compute by themselves.
func castagnoli(b []byte) uint32 { return crc32.Checksum(b, castagnoliTable) }

var castagnoliTable = crc32.MakeTable(crc32.Castagnoli)

// appendLine appends the line of r.
func appendLine(dst []byte, r *usagev1.Record) []byte {
	start := len(dst)
	dst = append(dst, "00000000 "...)
	dst = AppendJSON(dst, r)
	sum := castagnoli(dst[start+sumLen:])
	var raw [4]byte
	raw[0], raw[1], raw[2], raw[3] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
	hex.Encode(dst[start:], raw[:])
	return append(dst, '\n')
}

// checkLine returns the JSON of a line without its line feed, and the check sum that fits it.
func checkLine(line []byte) (body []byte, sum uint32, err error) {
	if len(line) < sumLen || line[sumLen-1] != ' ' {
		return nil, 0, errNoSum
	}
	var raw [4]byte
	if _, err := hex.Decode(raw[:], line[:sumLen-1]); err != nil {
		return nil, 0, errNoSum
	}
	said := uint32(raw[0])<<24 | uint32(raw[1])<<16 | uint32(raw[2])<<8 | uint32(raw[3])
	body = line[sumLen:]
	if sum = castagnoli(body); sum != said {
		return nil, 0, errBadSum
	}
	return body, sum, nil
}

// parseLine reads a line without its line feed. sum is the check sum of the content: equal sums, equal records.
func parseLine(line []byte) (r *usagev1.Record, sum uint32, err error) {
	body, sum, err := checkLine(line)
	if err != nil {
		return nil, 0, err
	}
	r, err = ParseJSON(body)
	if err != nil {
		return nil, 0, err
	}
	if r.Sequence == 0 {
		return nil, 0, fmt.Errorf("record %q has no sequence number", r.Id)
	}
	return r, sum, nil
}
