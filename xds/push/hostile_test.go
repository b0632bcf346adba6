package push

import (
	"crypto/x509"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	hubv1 "github.com/spokegate/spokegate/api/hub/v1"
)

// TestLyingTotals: no store can make others forget a period by another start, take all the room, or use up memory with names.
func TestLyingTotals(t *testing.T) {
	u := newUsed("hub")
	now := time.Date(2026, 11, 10, 12, 0, 0, 0, time.UTC)
	day, month := time.Date(2026, 11, 10, 0, 0, 0, 0, time.UTC), time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	total := func(kind hubv1.Kind, start time.Time, limit string) *hubv1.Total {
		return &hubv1.Total{Limit: limit, Kind: kind, Start: start.Unix(), Used: 7}
	}
	daily, monthly := hubv1.Kind_KIND_TOKENS_PER_DAY, hubv1.Kind_KIND_TOKENS_PER_MONTH
	for name, bad := range map[string]*hubv1.Total{
		"tomorrow": total(daily, day.AddDate(0, 0, 1), "l"), "next month": total(monthly, month.AddDate(0, 1, 0), "l"),
		"within the day": total(daily, day.Add(time.Second), "l"), "within the month": total(monthly, month.AddDate(0, 0, 1), "l"),
		"in a thousand years": total(daily, day.AddDate(1000, 0, 0), "l"), "a long name": total(daily, day, strings.Repeat("l", mostLimit+1)),
		"of no kind": total(hubv1.Kind_KIND_UNSPECIFIED, day, "l"),
	} {
		if err := u.take("liar", []*hubv1.Total{bad}, now); err != nil || len(u.byKey) != 0 {
			t.Errorf("%s: %v, %d sums", name, err, len(u.byKey))
		}
	}
	good := []*hubv1.Total{total(daily, day, "l"), total(monthly, month, "l")}
	if err := u.take("honest", good, now); err != nil || len(u.byKey) != 2 {
		t.Fatal(err, len(u.byKey))
	}
	if err := u.take("early", []*hubv1.Total{total(daily, day.AddDate(0, 0, 1), "l")}, day.AddDate(0, 0, 1).Add(-time.Second)); err != nil || len(u.byKey) != 3 {
		t.Errorf("a clock that is a second ahead: %v, %d sums", err, len(u.byKey))
	}
	u.stores["liar"].parts = mostOfStore
	if err := u.take("liar", good, now); err != errUsedFull {
		t.Error(err)
	}
	if err := u.take("honest", []*hubv1.Total{total(daily, day, "m")}, now); err != nil || len(u.byKey) != 4 {
		t.Errorf("another one: %v", err)
	}
	u.forget(day.AddDate(0, 0, 2))
	if n := u.stores["honest"].parts; n != 1 {
		t.Errorf("%d parts are left of the honest store, want the month's", n)
	}
}

// TestReportThatIsTooLong: many keys that a spoke refuses by itself are cut off, and what is long by something else is refused.
func TestReportThatIsTooLong(t *testing.T) {
	r := newRig(t, nil)
	c := r.dial("s/d")
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
	report, err := hubv1.NewSpokesClient(c.conn).Report(ctx)
	if err != nil {
		t.Fatal(err)
	}
	long := &hubv1.Report{Version: "v"}
	for range 20_000 {
		long.Revoked = append(long.Revoked, &hubv1.Revocation{Key: strings.Repeat("a", 64)})
	}
	send := func(m *hubv1.ReportRequest) {
		if err := report.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	send(&hubv1.ReportRequest{Door: &hubv1.Door{Spoke: "s", Name: "d"}, Report: long})
	if h := r.until("s/d", "away"); len(h.Report.GetRevoked()) != mostRevoked || h.Report.GetVersion() != "v" {
		t.Errorf("%d keys", len(h.Report.GetRevoked()))
	}
	send(&hubv1.ReportRequest{Report: &hubv1.Report{Version: strings.Repeat("v", mostReport)}})
	if _, err := report.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}

// TestMadeUpNames of doors push out those of no other spoke.
func TestMadeUpNames(t *testing.T) {
	l := holders{byNode: map[string]*holder{}}
	l.reported("honest", "d", &hubv1.Report{}, time.Time{})
	for i := range mostOfSpoke + 10 {
		l.reported("liar", fmt.Sprint("d", i), &hubv1.Report{}, time.Time{})
	}
	if len(l.byNode) != mostOfSpoke+1 || l.byNode["honest/d"] == nil {
		t.Errorf("%d doors are known", len(l.byNode))
	}
}

// TestStreamsOfOneCertificate: who takes all that there are locks out itself alone.
func TestStreamsOfOneCertificate(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Streams = 10 })
	one, other := &x509.Certificate{Raw: []byte("one")}, &x509.Certificate{Raw: []byte("other")}
	leave, err := r.server.share(one)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.server.share(one); err != nil {
		t.Fatal(err)
	}
	if _, err := r.server.share(one); status.Code(err) != codes.ResourceExhausted {
		t.Error(err)
	}
	if _, err := r.server.share(other); err != nil {
		t.Error(err)
	}
	leave()
	if _, err := r.server.share(one); err != nil {
		t.Error(err)
	}
}
