package test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// TestLedgerKilled: the shipped binary reads from the real Kafka while records stream in, and is killed with -9 again and
// again; the broker once, too. In the end its totals are those of a slow count.
func TestLedgerKilled(t *testing.T) {
	t.Parallel()
	k := newBroker(t)
	if err := k.start(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	spool, err := usage.Open(dir, "door/a", usage.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	forward, err := usage.NewForwarder(usage.ForwarderConfig{Dir: dir, Source: "door/a", Brokers: []string{k.addr}, Partitions: 3, Replicas: 1, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	shipped := make(chan struct{})
	go func() { defer close(shipped); forward.Run(ctx) }()
	defer func() { cancel(); <-shipped; _ = spool.Close(context.Background()) }()

	rnd := rand.New(rand.NewPCG(5, 5))
	want := map[string]teamTotal{}
	database, n := filepath.Join(t.TempDir(), "ledger.db"), 0
	const rounds, each = 4, 500
	for round := range rounds {
		for range each {
			for _, r := range billed(rnd, n, want) {
				spool.Append(r)
			}
			n++
		}
		if err := spool.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		l := startLedger(t, k.addr, database)
		l.await(t, func(got map[string]teamTotal) bool { return requestsOf(got) > round*each })
		l.kill()
		if round == 1 {
			k.kill()
			if err := k.start(); err != nil {
				t.Fatal(err)
			}
		}
	}
	l := startLedger(t, k.addr, database)
	defer l.kill()
	got := l.await(t, func(got map[string]teamTotal) bool { return fmt.Sprint(got) == fmt.Sprint(want) })
	if requestsOf(got) != n {
		t.Errorf("%d requests, want %d", requestsOf(got), n)
	}
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if <-l.exited; l.err != nil {
		t.Errorf("stopped, it ends with %v\n%s", l.err, l.out.String())
	}
}

// teamTotal is what a team used.
type teamTotal struct {
	Requests         int   `json:"requests"`
	Repaired         int   `json:"repaired"`
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	Cost             int64 `json:"cost"`
}

func requestsOf(m map[string]teamTotal) (n int) {
	for _, t := range m {
		n += t.Requests
	}
	return n
}

// billed makes the records of one request, in any order, some with a repair, and adds to want what it must count for.
func billed(rnd *rand.Rand, n int, want map[string]teamTotal) []*usagev1.Record {
	id, team := fmt.Sprintf("b%06d", n), fmt.Sprint("team", rnd.IntN(5))
	now := time.Now()
	a := &usagev1.Record{Id: usage.AdmittedID(id), Kind: usage.KindAdmitted, Admission: id, Key: "k", Team: team, Model: "m", AdmittedAt: timestamppb.New(now),
		Price: &usagev1.Price{Currency: "USD", Input: 1_000_000, Cached: 1_000_000, Output: 1_000_000}}
	u := proto.CloneOf(a)
	u.Id, u.Kind, u.Outcome, u.CountedFrom, u.EndedAt = usage.UsageID(id), usage.KindUsage, usage.OutcomeClientCut, usage.CountedEngine, timestamppb.New(now)
	u.PromptTokens, u.CompletionTokens = proto.Int64(rnd.Int64N(1000)), proto.Int64(rnd.Int64N(100))
	s := proto.CloneOf(u)
	s.Id, s.Kind, s.Attempt, s.Price = usage.ServedID(id, 1, "main"), usage.KindServed, 1, nil
	s.CompletionTokens = proto.Int64(*u.CompletionTokens + rnd.Int64N(50))
	list := []*usagev1.Record{a, u, s}
	if rnd.IntN(5) == 0 { // it wins nothing: the original comes too
		r := proto.CloneOf(u)
		r.Anomalies, r.PromptTokens, r.EndedAt = []string{usage.Repaired}, proto.Int64(1), timestamppb.New(now.Add(-3*time.Hour))
		list = append(list, r)
	}
	rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	sum := want[team]
	sum.Requests++
	sum.PromptTokens += *s.PromptTokens
	sum.CompletionTokens += *s.CompletionTokens
	sum.Cost += *s.PromptTokens + *s.CompletionTokens
	want[team] = sum
	return list
}

// ledgerProcess is `spokegate usage ledger`.
type ledgerProcess struct {
	*up
	address string
}

func startLedger(t *testing.T, kafka, database string) *ledgerProcess {
	t.Helper()
	address := freeAddr()
	p := &up{name: "ledger", exited: make(chan struct{}),
		cmd: exec.Command(lab.binary, "usage", "ledger", "-kafka", kafka, "-db", database, "-listen", address)}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.begin(); err != nil {
		t.Fatal(err)
	}
	return &ledgerProcess{p, address}
}

func (l *ledgerProcess) kill() {
	_ = l.cmd.Process.Kill()
	<-l.exited
}

// await waits until the totals are so.
func (l *ledgerProcess) await(t *testing.T, so func(map[string]teamTotal) bool) (got map[string]teamTotal) {
	t.Helper()
	eventually(t, kafkaPatience, func() (err error) {
		if got, err = l.totals(); err == nil && !so(got) {
			err = fmt.Errorf("the ledger says %v\n%s", got, l.out.String())
		}
		return err
	})
	return got
}

func (l *ledgerProcess) totals() (map[string]teamTotal, error) {
	res, err := http.Get("http://" + l.address + "/v1/ledger?group=team")
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var body struct {
		Rows []struct {
			Team string `json:"team"`
			teamTotal
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		return nil, err
	}
	got := map[string]teamTotal{}
	for _, r := range body.Rows {
		got[r.Team] = r.teamTotal
	}
	return got, nil
}
