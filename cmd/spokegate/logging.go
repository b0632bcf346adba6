package main

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/spokegate/spokegate/identity"
)

const (
	// linesPerSecond of one kind, at most, are written: whoever can make us refuse cannot fill the disk with it.
	linesPerSecond = 10
	// engineLinesPerSecond are an engine's own: why it died may be a traceback of hundreds of lines in one moment.
	engineLinesPerSecond = 1000
	// kindsAtOnce bounds what is remembered for that, in kinds of lines a second. All further ones share one place.
	kindsAtOnce = 256
)

// levelFlag adds -log-level.
func levelFlag(f *flag.FlagSet, level *slog.Level) {
	f.TextVar(level, "log-level", slog.LevelInfo, "the least `level` to log: debug, info, warn or error")
}

// newLog writes JSON lines: at most linesPerSecond of each kind, and how many there would have been.
func newLog(w io.Writer, level slog.Level, role, name string) *slog.Logger {
	h := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: plain})
	return slog.New(bounded{Handler: h, counts: &counts{of: map[kind]*count{}}}).With("role", role, "name", name)
}

// plain writes durations as people do (30s, not 30000000000), and no keys.
func plain(groups []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return withoutKeys(groups, a)
}

// withoutKeys is the last resort: no line is made to hold a key, but an error may quote what somebody wrote into a file.
func withoutKeys(_ []string, a slog.Attr) slog.Attr {
	text := ""
	switch v := a.Value.Any().(type) {
	case string:
		text = v
	case error:
		text = v.Error()
	}
	if masked := identity.Mask(text); masked != text {
		a.Value = slog.StringValue(masked)
	}
	return a
}

// bounded is a handler that leaves out what comes too often. A kind is a message and its attribute "code", if it has one.
type bounded struct {
	slog.Handler
	counts *counts
}

type kind struct{ message, code string }

func (k kind) most() int {
	if k.message == "engine" {
		return engineLinesPerSecond
	}
	return linesPerSecond
}

func (b bounded) Handle(ctx context.Context, r slog.Record) error {
	k := kind{message: r.Message}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "code" {
			k.code = a.Value.String()
			return false
		}
		return true
	})
	if !b.counts.take(k, r.Time, b.tell) {
		return nil
	}
	return b.Handler.Handle(ctx, r)
}

// tell writes what was left out.
func (b bounded) tell(k kind, n int, at time.Time) {
	r := slog.NewRecord(at, slog.LevelWarn, "lines left out", 0)
	r.AddAttrs(slog.String("of", k.message), slog.String("code", k.code), slog.Int("suppressed", n))
	_ = b.Handler.Handle(context.Background(), r) // there is nobody to tell that logging fails
}

func (b bounded) WithAttrs(attrs []slog.Attr) slog.Handler {
	return bounded{b.Handler.WithAttrs(attrs), b.counts}
}

func (b bounded) WithGroup(name string) slog.Handler {
	return bounded{b.Handler.WithGroup(name), b.counts}
}

// counts are of the second that began with the first line of any kind.
type counts struct {
	mu sync.Mutex
	of map[kind]*count
}

type count struct {
	lines, suppressed int
	tell              func(kind, int, time.Time)
}

// take says whether a line may be written. The first one that may not starts the clock after which the number is told.
func (c *counts) take(k kind, now time.Time, tell func(kind, int, time.Time)) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.of) == 0 {
		time.AfterFunc(time.Second, c.turn)
	}
	n := c.of[k]
	if n == nil {
		if len(c.of) >= kindsAtOnce {
			k = kind{message: "other"}
		}
		if n = c.of[k]; n == nil {
			n = &count{}
			c.of[k] = n
		}
	}
	if n.lines < k.most() {
		n.lines++
		return true
	}
	n.suppressed++
	n.tell = tell
	return false
}

// turn ends the second.
func (c *counts) turn() {
	c.mu.Lock()
	over := maps.Clone(c.of)
	clear(c.of)
	c.mu.Unlock()
	now := time.Now()
	for k, n := range over {
		if n.suppressed > 0 {
			n.tell(k, n.suppressed, now)
		}
	}
}
