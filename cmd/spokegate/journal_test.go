package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What keeps the shipping from beginning is on the health page and in the log, and once it is gone the shipping begins.
func TestJournalWhoseShippingCannotBegin(t *testing.T) {
	dir := t.TempDir()
	lock := filepath.Join(dir, "spool", "door_d", "shipped.lock")
	if err := os.MkdirAll(lock, 0o700); err != nil { // a folder where the file should be
		t.Fatal(err)
	}
	var lines bytes.Buffer
	j, err := openJournal(dir, "door/d", "127.0.0.1:9", newRegistry(), slog.New(slog.NewTextHandler(&lines, nil)))
	if err != nil {
		t.Fatal(err)
	}
	awaitNote(t, j, "note kafka: not shipping since")
	awaitNote(t, j, "shipped.lock")
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	awaitNote(t, j, "note kafka: 0 records shipped, 0 bytes wait")
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := j.close(done); err != nil {
		t.Error(err)
	}
	if !strings.Contains(lines.String(), "shipped.lock") {
		t.Errorf("the log says %q", lines.String())
	}
}

// awaitNote waits until a journal's notes have some text.
func awaitNote(t *testing.T, j *journal, want string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		var r report
		j.note(&r)
		notes := strings.Join(r.lines, "\n")
		if strings.Contains(notes, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the journal notes %q, want %q", notes, want)
		}
	}
}
