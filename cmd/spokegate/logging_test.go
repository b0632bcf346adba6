package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spokegate/spokegate/identity"
)

// logged are the lines that a function makes a log write.
func logged(t *testing.T, level slog.Level, f func(*slog.Logger)) []map[string]any {
	t.Helper()
	var out bytes.Buffer
	synctest.Test(t, func(*testing.T) {
		f(newLog(&out, level, "door", "door-1"))
		time.Sleep(2 * time.Second) // of a clock that waits for nobody
	})
	var lines []map[string]any
	for line := range strings.Lines(out.String()) {
		m := map[string]any{}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		lines = append(lines, m)
	}
	return lines
}

func TestFloodOfLinesIsCounted(t *testing.T) {
	lines := logged(t, slog.LevelInfo, func(l *slog.Logger) {
		for i := range 5000 {
			l.Info("refused", "admission", fmt.Sprint(i), "code", "invalid_api_key")
		}
		l.Info("refused", "admission", "x", "code", "model_not_found") // another kind goes on
		l.With("worker", "w").Info("refused", "admission", "y", "code", "invalid_api_key")
		time.Sleep(1500 * time.Millisecond)
		l.Info("refused", "admission", "z", "code", "invalid_api_key")
	})
	var kept, told int
	last := lines[len(lines)-1]
	for _, l := range lines {
		if l["msg"] == "refused" && l["code"] == "invalid_api_key" {
			kept++
		}
		if l["msg"] == "lines left out" {
			told++
			if l["of"] != "refused" || l["code"] != "invalid_api_key" || l["suppressed"] != float64(5001-linesPerSecond) || l["role"] != "door" {
				t.Errorf("%v", l)
			}
		}
	}
	if kept != linesPerSecond+1 || told != 1 || last["admission"] != "z" || len(lines) != kept+told+1 {
		t.Errorf("%d lines, %d kept, told %d times, the last is %v", len(lines), kept, told, last)
	}
}

// TestKindsAreBounded: whoever could make up kinds would fill memory, and the disk.
func TestKindsAreBounded(t *testing.T) {
	lines := logged(t, slog.LevelInfo, func(l *slog.Logger) {
		for i := range 20 * kindsAtOnce {
			l.Info("refused", "code", fmt.Sprint(i))
		}
	})
	if most := kindsAtOnce + linesPerSecond + 1; len(lines) > most || len(lines) < kindsAtOnce {
		t.Errorf("%d lines, want at most %d", len(lines), most)
	}
	if last := lines[len(lines)-1]; last["of"] != "other" || last["suppressed"] != float64(19*kindsAtOnce-linesPerSecond) {
		t.Errorf("%v", last)
	}
}

func TestLogLevel(t *testing.T) {
	lines := logged(t, slog.LevelWarn, func(l *slog.Logger) {
		l.Info("refused")
		l.Warn("admitted, but not served")
	})
	if len(lines) != 1 || lines[0]["level"] != "WARN" || lines[0]["name"] != "door-1" {
		t.Errorf("%v", lines)
	}
}

func TestNoLineHoldsAKey(t *testing.T) {
	secret, _ := identity.NewKey()
	lines := logged(t, slog.LevelDebug, func(l *slog.Logger) {
		l.With("with", secret).Warn("policy refused: "+secret+".", "reason", fmt.Errorf("there is no team %q", secret), "text", "a "+secret, "other", 7)
	})
	text := fmt.Sprint(lines)
	if strings.Contains(text, secret) || strings.Count(text, "sk-sg-…") != 4 || !strings.Contains(text, `there is no team "sk-sg-…"`) {
		t.Error(text)
	}
}

// TestAnEnginesTracebackIsKept: it says why the engine died, in one moment.
func TestAnEnginesTracebackIsKept(t *testing.T) {
	lines := logged(t, slog.LevelInfo, func(l *slog.Logger) {
		for i := range 300 {
			l.Info("engine", "line", fmt.Sprint(i))
		}
	})
	if len(lines) != 300 {
		t.Errorf("%d lines of 300", len(lines))
	}
}
