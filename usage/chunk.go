package usage

import "bytes"

// chunk is a run of lines on its way to Kafka. Its events point into its buffers, which are used again for another run.
type chunk struct {
	buf  []byte
	text []byte   // decoded strings that do not stand in buf as they are
	head []header // of all events

	segment string // name of the file
	offset  int64  // of buf in it
	events  []event
	spoilt  []spoilt
	to      position // behind the last line
}

// event is one record as a CloudEvent for Kafka.
type event struct {
	route
	key, value []byte
	headers    []header
	line       []byte // as in the segment, without the line feed
	offset     int64  // of the line in the segment
	settled    bool   // acknowledged by Kafka, or put aside
}

// size is about what the event takes in a request, in bytes.
func (e *event) size() int { return len(e.key) + len(e.value) + eventOverhead }

// eventOverhead is about what the headers and the frame of a record take.
const eventOverhead = 450

// spoilt is something between two line feeds that is no record.
type spoilt struct {
	offset  int64
	line    []byte
	err     error
	settled bool
}

func newChunk(size int) *chunk { return &chunk{buf: make([]byte, size)} }

// begin empties the chunk.
func (c *chunk) begin(segment string, offset int64) {
	c.segment, c.offset = segment, offset
	c.events, c.spoilt, c.text, c.head = c.events[:0], c.spoilt[:0], c.text[:0], c.head[:0]
}

// lines takes whole lines from the start of buf.
func (c *chunk) lines(b []byte) {
	for at := 0; at < len(b); {
		n := bytes.IndexByte(b[at:], '\n')
		line := b[at : at+n]
		if err := c.add(at, line); err != nil {
			c.spoil(at, line, err)
		}
		at += n + 1
	}
}

func (c *chunk) spoil(at int, line []byte, err error) {
	c.spoilt = append(c.spoilt, spoilt{offset: c.offset + int64(at), line: line, err: err})
}
