package xds

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	policyv1 "github.com/spokegate/spokegate/api/policy/v1"
	"github.com/spokegate/spokegate/policy"
)

// script is a source that offers what it is told, then waits, as the hub's stream does.
type script struct {
	offers  []Candidate
	err     error // returned by Run instead of waiting
	answers []string
}

func (s *script) Run(ctx context.Context, held *policy.Cut, offer func(Candidate)) error {
	for ctx.Err() == nil && len(s.offers) > 0 {
		c := s.offers[0]
		s.offers = s.offers[1:]
		offer(c)
	}
	if s.err != nil && ctx.Err() == nil {
		return s.err
	}
	<-ctx.Done()
	return nil
}

func (s *script) Ack(revision uint64) { s.answers = append(s.answers, fmt.Sprint("ack ", revision)) }
func (s *script) Nack(reason string, again bool) {
	s.answers = append(s.answers, fmt.Sprintf("nack %s %v", reason, again))
}

// set is a policy with so many models, numbered unless the number is 0.
func set(number uint64, models int) *policyv1.Set {
	out := &policyv1.Set{Endpoints: []*policyv1.Endpoint{{Name: "e"}}}
	for i := range models {
		out.Models = append(out.Models, &policyv1.Model{Name: fmt.Sprint("m", i), Endpoint: "e"})
	}
	if number > 0 {
		out.Revision = &policyv1.Revision{Number: number, Digest: policy.Digest(out), Message: "because"}
	}
	return out
}

func agent(dir string, s Source) (*Agent, *policy.Current) {
	current := &policy.Current{}
	return NewAgent(dir, current, s, Options{Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return t0 }, Patience: time.Millisecond}), current
}

// TestNumberedOffers: a source that numbers, as the hub will.
func TestNumberedOffers(t *testing.T) {
	mangled := set(9, 3)
	mangled.Models = mangled.Models[1:]
	s := &script{offers: []Candidate{
		{Cut: policy.NewCut(set(5, 1))},
		{Cut: policy.NewCut(set(5, 1))},                                // again
		{Cut: policy.NewCut(set(7, 2))},                                // numbers may be left out
		{Cut: policy.NewCut(set(6, 1))},                                // back
		{Cut: policy.NewCut(set(7, 3))},                                // another content under the same number
		{Cut: policy.NewCut(mangled), Digest: mangled.Revision.Digest}, // something is missing
		{Cut: policy.NewCut(set(8, 2))},                                // the same content under a new number
		{Cut: nil},                                                     // nothing
		{Err: errors.New("stream is broken")},                          // could not be read
		{Cut: policy.NewCut(set(0, 4))},                                // not numbered
	}}
	a, current := agent(t.TempDir(), s)
	ctx, cancel := context.WithCancel(context.Background())
	if err := a.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if current.Load().Revision() != 5 || len(s.answers) != 1 {
		t.Errorf("after the start revision %d is in force, %d offers answered", current.Load().Revision(), len(s.answers))
	}
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	for current.Load().Revision() != 9 {
		select {
		case err := <-done:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	want := []string{
		"ack 5", "ack 5", "ack 7",
		"nack revision 6 is not newer than revision 7, which is in force false",
		"nack revision 7 is not newer than revision 7, which is in force false",
		"nack the digest does not fit the content: something is missing, or was changed on the way false",
		"ack 8", "nack the source offered nothing false", "nack stream is broken false", "ack 9",
	}
	if !slices.Equal(s.answers, want) {
		t.Errorf("got  %s\nwant %s", strings.Join(s.answers, "\n     "), strings.Join(want, "\n     "))
	}
}

func TestKeptAsOffered(t *testing.T) {
	dir := t.TempDir()
	offered := set(3, 2)
	before := proto.CloneOf(offered)
	s := &script{offers: []Candidate{{Cut: policy.NewCut(offered)}}}
	a, _ := agent(dir, s)
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(offered, before) {
		t.Error("the offered set was changed")
	}
	cut, err := policy.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := cut.Set()
	if err != nil {
		t.Fatal(err)
	}
	if kept.Revision.Message != "because" || kept.Revision.MadeAt.AsTime() != t0 {
		t.Errorf("%v", kept.Revision)
	}
	kept.Revision, before.Revision = nil, nil
	if !proto.Equal(kept, before) {
		t.Errorf("kept %v", kept)
	}
}

// TestStartWithSilentSource: the hub is away.
func TestStartWithSilentSource(t *testing.T) {
	dir := t.TempDir()
	a, _ := agent(dir, &script{})
	ctx, cancel := context.WithCancelCause(context.Background())
	gone := errors.New("told to stop")
	cancel(gone)
	if err := a.Start(ctx); !errors.Is(err, gone) {
		t.Errorf("without anything: %v", err)
	}
	first, _ := agent(dir, &script{offers: []Candidate{{Cut: policy.NewCut(set(4, 1))}}})
	if err := first.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, current := agent(dir, &script{})
	if err := a.Start(t.Context()); err != nil || current.Load().Revision() != 4 {
		t.Errorf("with a last good revision: %v", err)
	}
	if st := a.Status(); !st.FromDisk || st.Revision != 4 || st.LastNack != "" {
		t.Errorf("%+v", st)
	}
}

func TestStartWithBrokenSource(t *testing.T) {
	broken := errors.New("no such host")
	a, _ := agent(t.TempDir(), &script{err: broken})
	err := a.Start(t.Context())
	if !errors.Is(err, broken) || err.Error() != "no policy to serve: no such host" {
		t.Errorf("%v", err)
	}
	if err := a.Run(t.Context()); !errors.Is(err, broken) {
		t.Errorf("Run: %v", err)
	}
	a, _ = agent(t.TempDir(), ended{})
	if err := a.Start(t.Context()); err == nil || err.Error() != "no policy to serve: the source has offered nothing" {
		t.Errorf("a source that just ends: %v", err)
	}
}

type ended struct{}

func (ended) Run(context.Context, *policy.Cut, func(Candidate)) error { return nil }
func (ended) Ack(uint64)                                              {}
func (ended) Nack(string, bool)                                       {}

// TestDiskHoldsInvalidPolicy: another release wrote what this one refuses.
func TestDiskHoldsInvalidPolicy(t *testing.T) {
	dir := t.TempDir()
	bad := set(6, 1)
	bad.Models[0].Endpoint = "gone"
	bad.Revision.Digest = nil
	if err := policy.NewKeeper(dir).Save(policy.NewCut(bad)); err != nil {
		t.Fatal(err)
	}
	a, current := agent(dir, &script{err: fs.ErrInvalid})
	if err := a.Start(t.Context()); err == nil || !strings.Contains(err.Error(), `there is no endpoint "gone"`) || current.Load() != nil {
		t.Errorf("%v", err)
	}
	a, current = agent(dir, &script{offers: []Candidate{{Cut: policy.NewCut(set(0, 1))}}})
	if err := a.Start(t.Context()); err != nil || current.Load().Revision() != 7 {
		t.Errorf("%v", err)
	}
}

// TestDiskGoesOnThatWouldBeRefused: what an earlier release took is served after an upgrade, also where the same file would be
// refused now.
func TestDiskGoesOnThatWouldBeRefused(t *testing.T) {
	dir := t.TempDir()
	kept := set(6, 1)
	kept.Platform = &policyv1.Platform{Limits: []*policyv1.Limit{{TokensPerDay: proto.Uint64(100)}}} // less than one answer reserves
	kept.Revision.Digest = nil
	if err := policy.NewKeeper(dir).Save(policy.NewCut(kept)); err != nil {
		t.Fatal(err)
	}
	again := proto.CloneOf(kept)
	again.Revision = nil
	again.Models = append(again.Models, &policyv1.Model{Name: "new", Endpoint: "e"})
	a, current := agent(dir, &script{offers: []Candidate{{Cut: policy.NewCut(again)}}})
	if err := a.Start(t.Context()); err != nil || current.Load().Revision() != 6 {
		t.Fatalf("%v", err)
	}
	if nack := a.Status().LastNack; !strings.Contains(nack, "none would ever pass") {
		t.Errorf("the offer that is of no use: %q", nack)
	}
}

// TestAPolicyArrivesWhole: nothing that a file can say is lost on the way into force, or on disk.
func TestAPolicyArrivesWhole(t *testing.T) {
	const path = "../examples/policy.yaml"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	set, err := policy.Parse(path, text)
	if err != nil {
		t.Fatal(err)
	}
	dir, quiet := t.TempDir(), slog.New(slog.DiscardHandler)
	for _, from := range []string{path, filepath.Join(dir, "nowhere.yaml")} { // the second time from disk
		current := &policy.Current{}
		a := NewAgent(dir, current, NewFile(from, quiet), Options{Log: quiet})
		if err := a.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := current.Load().Digest(), hex.EncodeToString(policy.Digest(set)); got != want || len(current.Load().Issuers()) == 0 {
			t.Errorf("from %s: digest %s, want %s", from, got, want)
		}
	}
}
