package kv

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// ZMTP 3.0 without security, as much as a subscriber and a replay need (rfc.zeromq.org/spec/23). Sizes are bounded, and every
// wait has an end: the libraries at hand have neither.

const (
	// greetMost is how long a peer may take to shake hands, and to take or to finish a message.
	greetMost = 10 * time.Second
	// messageMost bounds a message, in bytes, and partsMost its frames.
	messageMost = 64 << 20
	partsMost   = 16
)

const (
	flagMore, flagLong, flagCommand = 1, 2, 4
)

var errNotZMTP = errors.New("the peer does not speak ZMTP 3 without security")

// zmtp is one connection. One goroutine reads it.
type zmtp struct {
	conn   net.Conn
	in     *bufio.Reader
	buffer []byte   // of the last message
	frames [][]byte // of the last message, in buffer
}

// newZMTP shakes hands as a socket of the given type. peers are the types that it may meet.
func newZMTP(conn net.Conn, own string, peers ...string) (*zmtp, error) {
	z := &zmtp{conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}
	if err := conn.SetDeadline(time.Now().Add(greetMost)); err != nil {
		return nil, err
	}
	if err := z.greet(); err != nil {
		return nil, err
	}
	ready := append([]byte("\x05READY"), property("Socket-Type", own)...)
	if err := z.write(flagCommand, append(ready, property("Identity", "")...)); err != nil {
		return nil, err
	}
	flags, size, err := z.head()
	if err != nil {
		return nil, err
	}
	body, err := z.body(nil, size)
	if err != nil {
		return nil, err
	}
	if flags&flagCommand == 0 || !bytes.HasPrefix(body, []byte("\x05READY")) {
		return nil, fmt.Errorf("%w: %.40q", errNotZMTP, body)
	}
	for _, peer := range peers {
		if bytes.Contains(body, property("Socket-Type", peer)) {
			return z, conn.SetDeadline(time.Time{})
		}
	}
	return nil, fmt.Errorf("the peer is no %s socket: %.80q", peers[0], body)
}

func property(name, value string) []byte {
	p := append([]byte{byte(len(name))}, name...)
	return append(binary.BigEndian.AppendUint32(p, uint32(len(value))), value...)
}

func (z *zmtp) greet() error {
	hello := [64]byte{0: 0xff, 9: 0x7f, 10: 3}
	copy(hello[12:], "NULL")
	if _, err := z.conn.Write(hello[:]); err != nil {
		return err
	}
	var got [64]byte
	if _, err := io.ReadFull(z.in, got[:11]); err != nil {
		return err
	}
	if got[0] != 0xff || got[9]&1 == 0 || got[10] < 3 {
		return errNotZMTP
	}
	if _, err := io.ReadFull(z.in, got[11:]); err != nil {
		return err
	}
	if !bytes.Equal(got[12:32], hello[12:32]) {
		return errNotZMTP
	}
	return nil
}

// write sends one frame.
func (z *zmtp) write(flags byte, body []byte) error {
	head := []byte{flags, byte(len(body))}
	if len(body) > 255 {
		head = binary.BigEndian.AppendUint64([]byte{flags | flagLong}, uint64(len(body)))
	}
	_, err := z.conn.Write(append(head, body...))
	return err
}

// send sends one message of short frames.
func (z *zmtp) send(frames ...[]byte) error {
	if err := z.conn.SetWriteDeadline(time.Now().Add(greetMost)); err != nil {
		return err
	}
	for i, f := range frames {
		flags := byte(flagMore)
		if i == len(frames)-1 {
			flags = 0
		}
		if err := z.write(flags, f); err != nil {
			return err
		}
	}
	return nil
}

// errIdle says that no message began in time; the connection is as good as before.
var errIdle = errors.New("no message")

// receive waits for a message, at most idle for its first byte. The frames are good until the next call.
func (z *zmtp) receive(idle time.Duration) ([][]byte, error) {
	for {
		if err := z.conn.SetReadDeadline(time.Now().Add(idle)); err != nil {
			return nil, err
		}
		if _, err := z.in.Peek(1); err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				return nil, errIdle
			}
			return nil, err
		}
		if err := z.conn.SetReadDeadline(time.Now().Add(greetMost)); err != nil {
			return nil, err
		}
		command, err := z.message()
		if err != nil || !command {
			return z.frames, err
		}
	}
}

// message reads one message, or takes one command.
func (z *zmtp) message() (command bool, err error) {
	z.buffer = z.buffer[:0]
	var ends [partsMost]int
	parts := 0
	for more := true; more; parts++ {
		flags, size, err := z.head()
		if err != nil {
			return false, err
		}
		if parts == partsMost || size > uint64(messageMost-len(z.buffer)) {
			return false, fmt.Errorf("a message of more than %d frames or %d bytes", partsMost, messageMost)
		}
		if z.buffer, err = z.body(z.buffer, size); err != nil {
			return false, err
		}
		if flags&flagCommand != 0 {
			return true, z.command(z.buffer)
		}
		more = flags&flagMore != 0
		ends[parts] = len(z.buffer)
	}
	z.frames = z.frames[:0]
	from := 0
	for _, end := range ends[:parts] {
		z.frames = append(z.frames, z.buffer[from:end])
		from = end
	}
	return false, nil
}

func (z *zmtp) head() (flags byte, size uint64, err error) {
	if flags, err = z.in.ReadByte(); err != nil {
		return 0, 0, err
	}
	if flags&flagLong == 0 {
		b, err := z.in.ReadByte()
		return flags, uint64(b), err
	}
	var long [8]byte
	_, err = io.ReadFull(z.in, long[:])
	return flags, binary.BigEndian.Uint64(long[:]), err
}

// body appends the body of a frame. Memory grows with what has come, not with what was promised.
func (z *zmtp) body(to []byte, size uint64) ([]byte, error) {
	const step = 1 << 20
	if size > messageMost {
		return to, fmt.Errorf("a frame of %d bytes", size)
	}
	for size > 0 {
		n := int(min(size, step))
		from := len(to)
		to = append(to, make([]byte, n)...) // which the compiler turns into growing in place
		if _, err := io.ReadFull(z.in, to[from:]); err != nil {
			return to, err
		}
		size -= uint64(n)
	}
	return to, nil
}

// command answers a ping and passes over all else.
func (z *zmtp) command(body []byte) error {
	ping := []byte("\x04PING")
	if !bytes.HasPrefix(body, ping) || len(body) < len(ping)+2 {
		return nil
	}
	if err := z.conn.SetWriteDeadline(time.Now().Add(greetMost)); err != nil {
		return err
	}
	return z.write(flagCommand, append([]byte("\x04PONG"), body[len(ping)+2:]...))
}
