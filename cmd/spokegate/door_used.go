package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net/url"
	"time"

	hubv1 "github.com/spokegate/spokegate/api/hub/v1"
	"github.com/spokegate/spokegate/limits"
	"github.com/spokegate/spokegate/xds/follow"
)

// hubKinds are quotas as the hub names them.
var hubKinds = map[limits.Kind]hubv1.Kind{
	limits.RequestsPerDay: hubv1.Kind_KIND_REQUESTS_PER_DAY, limits.TokensPerDay: hubv1.Kind_KIND_TOKENS_PER_DAY,
	limits.RequestsPerMonth: hubv1.Kind_KIND_REQUESTS_PER_MONTH, limits.TokensPerMonth: hubv1.Kind_KIND_TOKENS_PER_MONTH,
}

// hubUsage has the hub told what quotas have counted here, and takes what they have counted elsewhere.
func (d *door) hubUsage(r *follow.Reports) {
	d.elsewhere = &limits.Elsewhere{}
	r.Store = storeOf(d.redis)
	if d.redis == "" {
		r.Store = "door/" + d.name + "/" + rand.Text() // a restart forgets, and so begins a store of its own
	}
	r.Used = func(context.Context) (out []*hubv1.Total, err error) {
		for _, t := range d.limiter.Counted(time.Now()) {
			out = append(out, &hubv1.Total{Limit: t.ID, Kind: hubKinds[t.Kind], Start: t.Start.Unix(), Used: t.Used})
		}
		return out, nil
	}
	r.Elsewhere = func(hub string, totals []*hubv1.Total) {
		ts := make([]limits.Total, 0, len(totals))
		for _, t := range totals {
			for kind, named := range hubKinds {
				if named == t.GetKind() {
					ts = append(ts, limits.Total{ID: t.GetLimit(), Kind: kind, Start: time.Unix(t.GetStart(), 0).UTC(), Used: t.GetUsed()})
				}
			}
		}
		d.elsewhere.Take(hub, time.Now(), ts)
	}
}

// storeOf names the Redis that doors share, so that two are not taken for one: by where it is, without who may use it there.
func storeOf(address string) string {
	at := address
	if u, err := url.Parse(address); err == nil {
		at = u.Host + u.Path
	}
	sum := sha256.Sum256([]byte(at))
	return fmt.Sprintf("redis/%x", sum[:8])
}
