package usage

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/segmentio/kafka-go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

func TestKafkaComesLater(t *testing.T) {
	k, dir := prepareKafka(t), t.TempDir()
	k.kill()
	s := requestJournal(t, dir, 500, Options{})
	f, _ := forward(t, testConfig(t, k, dir))
	until(t, "an error", func() bool { return f.Status().Err != "" })
	appendRequests(t, s, 500, 500)
	until(t, "a lag", func() bool { return f.Status().LagBytes == s.Stats().Bytes })
	if st := s.Stats(); st.Lost != 0 || st.Synced != 2000 {
		t.Errorf("the journal minds: %+v", st)
	}
	k.start(t)
	drain(t, f)
	assertShipped(t, k, dir, t.Name()+".")
	if st := f.Status(); st.Err != "" {
		t.Errorf("%+v", st)
	}
}

func TestKafkaGetsEverythingOnce(t *testing.T) {
	k, dir, registry, began := startKafka(t), t.TempDir(), prometheus.NewRegistry(), time.Now()
	first := requestJournal(t, dir, 1000, Options{SegmentBytes: 100_000})
	if err := first.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	s := requestJournal(t, dir, 0, Options{SegmentBytes: 100_000}) // another epoch
	appendRequests(t, s, 1000, 1000)
	cfg := testConfig(t, k, dir)
	cfg.Registerer = registry
	f, stop := forward(t, cfg)
	drain(t, f)
	appendRequests(t, s, 2000, 1000)
	drain(t, f)
	if doubled := assertShipped(t, k, dir, cfg.Prefix); doubled != 0 {
		t.Errorf("%d records are there twice", doubled)
	}
	until(t, "a lag of 0", func() bool { return f.Status().LagBytes == 0 })
	if st := f.Status(); st.Shipped != 6000 || st.Aside != 0 || st.Err != "" || st.LastSuccess.Before(began) {
		t.Errorf("%+v", st)
	}
	for _, kind := range []string{KindAdmitted, KindUsage} {
		if n := testutil.ToFloat64(f.metrics.shipped.WithLabelValues(kind)); n != 3000 {
			t.Errorf("%v of kind %s", n, kind)
		}
	}
	stop()
	cfg.Registerer = nil // of the next process
	again, _ := forward(t, cfg)
	drain(t, again)
	if st := again.Status(); st.Shipped != 0 {
		t.Errorf("shipped again: %+v", st)
	}
}

// The broker is killed with -9 under writes, and comes back.
func TestKafkaKilled(t *testing.T) {
	k, dir := startKafka(t), t.TempDir()
	s := requestJournal(t, dir, 0, Options{SegmentBytes: 200_000})
	cfg := testConfig(t, k, dir)
	cfg.chunkBytes, cfg.requestBytes = 2*MaxLine, 8<<10 // so that it is always in the middle of something
	f, _ := forward(t, cfg)
	from := 0
	more := func() { appendRequests(t, s, from, 100); from += 100 }
	until(t, "records under way", func() bool { more(); return f.Status().Shipped > 2000 })
	k.kill()
	more()
	until(t, "an error", func() bool { return f.Status().Err != "" })
	more()
	k.start(t)
	more()
	drain(t, f)
	doubled := assertShipped(t, k, dir, cfg.Prefix)
	t.Logf("%d requests, %d records doubled", from, doubled)
}

// shipper is a forwarder in a process of its own, which kills itself in mid-work: nobody else could be sure to be in time.
func shipper(dir string) {
	f, err := NewForwarder(ForwarderConfig{
		Dir: dir, Source: "door/main", Brokers: []string{os.Getenv("USAGE_TEST_BROKER")}, Prefix: os.Getenv("USAGE_TEST_PREFIX"),
		poll: time.Millisecond, tidy: 5 * time.Millisecond, chunkBytes: 2 * MaxLine, requestBytes: 4 << 10,
	})
	if err == nil {
		go func() {
			for f.Status().Shipped < 300 {
				time.Sleep(time.Millisecond) // polls a fact
			}
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}()
		f.Run(context.Background())
	}
	fmt.Println(err)
	os.Exit(1)
}

func TestForwarderKilled(t *testing.T) {
	k, dir, prefix := startKafka(t), t.TempDir(), t.Name()+"."
	s := requestJournal(t, dir, 0, Options{SegmentBytes: 200_000})
	for round := range 4 {
		appendRequests(t, s, round*2000, 2000)
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "USAGE_TEST_SHIPPER="+dir, "USAGE_TEST_BROKER="+k.addr, "USAGE_TEST_PREFIX="+prefix)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("the forwarder ended with %v: %s", err, out)
		}
	}
	if at, err := loadPosition(filepath.Join(dir, "door_main")); err != nil || at == (position{}) {
		t.Errorf("it had come to %+v, %v", at, err)
	}
	f, _ := forward(t, testConfig(t, k, dir))
	drain(t, f)
	t.Logf("%d records doubled", assertShipped(t, k, dir, prefix))
	if n := f.Status().Shipped; n == 0 || n == 16_000 {
		t.Errorf("%d records were left to ship: it was killed too late, or began at the start", n)
	}
}

func TestTopicMissing(t *testing.T) {
	k, dir := startKafka(t), t.TempDir()
	cfg := testConfig(t, k, dir)
	cfg.NoCreate = true
	requestJournal(t, dir, 100, Options{})
	f, _ := forward(t, cfg)
	until(t, "an error", func() bool { return strings.Contains(f.Status().Err, "create it") })
	k.createTopic(t, cfg.Prefix+KindAdmitted, 2)
	k.createTopic(t, cfg.Prefix+KindUsage, 1)
	drain(t, f)
	assertShipped(t, k, dir, cfg.Prefix)
}

// A record that its topic is too small for is put aside; all others arrive.
func TestRecordTooLargeForItsTopic(t *testing.T) {
	k, dir := startKafka(t), t.TempDir()
	cfg := testConfig(t, k, dir)
	k.createTopic(t, cfg.Prefix+KindUsage, 1, kafka.ConfigEntry{ConfigName: "max.message.bytes", ConfigValue: "16384"})
	s := requestJournal(t, dir, 200, Options{})
	large := record(999)
	large.ClientRequestId = noise(20_000)
	s.Append(large)
	appendRequests(t, s, 200, 200)
	f, stop := forward(t, cfg)
	drain(t, f)
	if st := f.Status(); st.Aside != 1 || st.Shipped != 800 || st.Err != "" {
		t.Errorf("%+v", st)
	}
	stop()
	b, err := os.ReadFile(filepath.Join(dir, "door_main", asideFile))
	if err != nil {
		t.Fatal(err)
	}
	var a Aside
	if err := json.Unmarshal(b, &a); err != nil {
		t.Fatal(err)
	}
	r, _, err := parseLine([]byte(a.Line))
	if err != nil || r.Id != large.Id || a.Topic != cfg.Prefix+KindUsage || !strings.Contains(a.Reason, "Message Size Too Large") {
		t.Errorf("%v, %v", err, a)
	}
	if n := len(k.consume(t, cfg.Prefix+KindUsage)); n != 400 {
		t.Errorf("%d usage records arrived", n)
	}
}

// noise does not get smaller by compression.
func noise(n int) string {
	b := make([]byte, n/2)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return hex.EncodeToString(b)
}

// A connection so slow that a whole request does not get through in time: requests become smaller, and get through.
func TestSlowKafka(t *testing.T) {
	k, dir := startKafka(t), t.TempDir()
	cfg := testConfig(t, k, dir)
	k.createTopic(t, cfg.Prefix+KindUsage, 1)
	s := requestJournal(t, dir, 0, Options{})
	for i := range 100 {
		r := record(i)
		r.AdmittedAt = timestamppb.Now()
		r.ClientRequestId = noise(4000)
		s.Append(r)
	}
	flush(t, s)
	proxy := newProxy(t, 150_000) // bytes a second: 400 KB take longer than the timeout
	cfg.dial, cfg.Timeout = proxy.dial, time.Second
	f, _ := forward(t, cfg)
	drain(t, f)
	t.Logf("%d records doubled, %d bytes sent", assertShipped(t, k, dir, cfg.Prefix), proxy.sent.Load())
	if testutil.ToFloat64(f.metrics.errors) == 0 {
		t.Error("nothing was slow: the test shows nothing")
	}
}

// A broker that is there and says nothing.
func TestFrozenKafka(t *testing.T) {
	k, dir := startKafka(t), t.TempDir()
	cfg := testConfig(t, k, dir)
	cfg.Timeout = time.Second
	s := requestJournal(t, dir, 100, Options{})
	f, _ := forward(t, cfg)
	drain(t, f)
	k.signal(t, syscall.SIGSTOP)
	defer k.signal(t, syscall.SIGCONT)
	appendRequests(t, s, 100, 100)
	until(t, "an error", func() bool { return f.Status().Err != "" })
	appendRequests(t, s, 200, 100)
	if st := s.Stats(); st.Lost != 0 || st.Synced != 600 {
		t.Errorf("the journal minds: %+v", st)
	}
	k.signal(t, syscall.SIGCONT)
	drain(t, f)
	t.Logf("%d records doubled", assertShipped(t, k, dir, cfg.Prefix))
}
