package main

import (
	"bytes"
	"context"
	"flag"
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
	j, err := openJournal(dir, "door/d", kafkaFlags{brokers: "127.0.0.1:9"}, newRegistry(), slog.New(slog.NewTextHandler(&lines, nil)))
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
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
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

// What is said of Kafka reaches the workers' processes as it reached the door, and what does not fit is refused at the start.
func TestKafkaFlags(t *testing.T) {
	t.Setenv("SPOKEGATE_KAFKA", "")
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("of-nobody\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	u, err := upWith(t, "-kafka=a:1,b:2", "-kafka-tls", "-kafka-sasl=scram-sha-512", "-kafka-user=door", "-kafka-password-file="+password)
	if err != nil {
		t.Fatal(err)
	}
	var w workerFlags
	f := flag.NewFlagSet("worker", flag.ContinueOnError)
	w.register(f)
	argv := (&site{endpoints: []string{"large"}}).workers(u)[0].argv
	if err := f.Parse(argv[2:]); err != nil || w.kafka != u.door.kafka || w.kafka.security.SASL != "scram-sha-512" {
		t.Errorf("%v: %q gives %+v, want %+v", err, argv, w.kafka, u.door.kafka)
	}
	for _, c := range []struct{ args, want string }{
		{"-kafka-tls", "no use without -kafka"},
		{"-kafka=localhost", `"localhost" is no broker; want HOST:PORT`},
		{"-kafka=a:9092,b", `"b" is no broker`},
		{"-kafka=a:9092,", `"" is no broker`},
		{"-kafka=:9092", "no broker"},
		{"-kafka=a:0", "no broker"},
		{"-kafka=a:http", "no broker"},
		{"-kafka=::1", "no broker"},
		{"-kafka=a:1 -kafka-sasl=plain -kafka-user=door -kafka-password-file=" + password, "use TLS"},
		{"-kafka=a:1 -kafka-ca=/absent", "without TLS"},
		{"-kafka=a:1 -kafka-tls -kafka-ca=/absent", "no such file"},
	} {
		if _, err := upWith(t, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}
