package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
	"time"
)

// conn is one keep-alive connection of a client that does little more than write prepared bytes and read the answer.
type conn struct {
	net    net.Conn
	r      *bufio.Reader
	lines  *bufio.Reader // over the decoded body of a stream
	out    []byte
	first  func()              // the first chunk of a stream has come
	delays func(time.Duration) // of each chunk, from the engine's write to our read
}

func dial(address string) (*conn, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return over(c), nil
}

func over(c net.Conn) *conn {
	return &conn{net: c, r: bufio.NewReaderSize(c, 16<<10), lines: bufio.NewReaderSize(nil, 4<<10)}
}

// answer is what a request brought.
type answer struct {
	events int // of a stream, the terminal one included
	bytes  int
}

// small bodies go out in one piece with their head, large ones beside it without a copy.
const small = 16 << 10

// do sends one request and reads its whole answer. token is empty where the door makes the context.
func (c *conn) do(q request, token string) (answer, error) {
	c.out = append(c.out[:0], q.head...)
	if token != "" {
		c.out = append(append(c.out, "x-spokegate-context: "...), token...)
		c.out = append(c.out, "\r\n"...)
	}
	c.out = append(c.out, "\r\n"...)
	var err error
	if len(q.body) <= small {
		c.out = append(c.out, q.body...)
		_, err = c.net.Write(c.out)
	} else {
		_, err = (&net.Buffers{c.out, q.body}).WriteTo(c.net)
	}
	if err != nil {
		return answer{}, err
	}
	return c.read()
}

func (c *conn) read() (answer, error) {
	status, length, err := c.head()
	if err != nil {
		return answer{}, err
	}
	if status != 200 {
		text, _ := c.r.Peek(min(max(length, 0), 300))
		return answer{}, fmt.Errorf("status %d: %s", status, text)
	}
	if length >= 0 {
		_, err := c.r.Discard(length)
		return answer{bytes: length}, err
	}
	return c.chunked()
}

// head reads the status and the length of the body, -1 where it is chunked.
func (c *conn) head() (status, length int, err error) {
	length = -1
	for first := true; ; first = false {
		line, err := c.r.ReadSlice('\n')
		if err != nil {
			return 0, 0, err
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			return status, length, nil
		}
		if first {
			status, _ = strconv.Atoi(string(line[min(9, len(line)):min(12, len(line))]))
		} else if name, value, _ := bytes.Cut(line, []byte(":")); bytes.EqualFold(name, []byte("content-length")) {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
		}
	}
}

var (
	dataMark = []byte("data: ")
	doneMark = []byte("data: [DONE]")
	timeMark = []byte(stampMark)
)

// chunked reads a stream, event by event.
func (c *conn) chunked() (a answer, err error) {
	c.lines.Reset(httputil.NewChunkedReader(c.r))
	done := false
	for {
		line, err := c.lines.ReadSlice('\n')
		a.bytes += len(line)
		if err == io.EOF {
			break
		}
		if err != nil {
			return a, err
		}
		if !bytes.HasPrefix(line, dataMark) {
			continue
		}
		done = bytes.HasPrefix(line, doneMark)
		if a.events++; a.events == 1 && c.first != nil {
			c.first()
		}
		if c.delays != nil {
			c.stamped(line)
		}
	}
	if !done {
		return a, fmt.Errorf("the stream broke off after %d events", a.events)
	}
	_, err = c.r.Discard(2) // the empty line after the last chunk
	return a, err
}

func (c *conn) stamped(line []byte) {
	at := bytes.Index(line, timeMark)
	if at < 0 {
		return
	}
	if sent, err := strconv.ParseInt(string(line[at+len(timeMark):at+len(timeMark)+stampDigits]), 10, 64); err == nil {
		c.delays(time.Since(began) - time.Duration(sent))
	}
}
