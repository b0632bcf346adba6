package limits

import (
	"context"
	"time"
)

// Totals implements Rebuilder.
func (r *Redis) Totals(ctx context.Context, now time.Time, ids []string) ([]Total, error) {
	return nil, nil
}

// Raise implements Rebuilder.
func (r *Redis) Raise(ctx context.Context, now time.Time, ts []Total) error {
	return nil
}

// Memory implements Primary.
func (r *Redis) Memory() string { return "" }
