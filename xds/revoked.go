package xds

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/spokegate/spokegate/policy"
)

// followRevoked looks at the keys that this spoke revokes by itself until ctx is done.
func (a *Agent) followRevoked(ctx context.Context) {
	file := NewFile(policy.RevokedPath(a.dir), a.Log)
	file.Every = a.every
	tick := time.NewTicker(a.every)
	defer tick.Stop()
	for {
		if info, err := os.Stat(file.path); file.moved(info, err) {
			a.sawRevoked(file.path, file.look(info, err))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sawRevoked takes up what a look showed. What cannot be read, or is gone, changes nothing: keys that are revoked stay so.
func (a *Agent) sawRevoked(path string, v view) {
	var list []policy.Revocation
	err := v.err
	if err == nil {
		list, err = policy.ParseRevoked(path, v.content)
	}
	a.mu.Lock()
	before, problem := a.revoked, a.status.RevokedErr
	a.mu.Unlock()
	if errors.Is(err, fs.ErrNotExist) {
		if len(before) == 0 {
			err = nil
		} else {
			err = errors.New("revoked keys: " + path + " is gone; they stay revoked until the door starts again")
		}
	}
	if err != nil {
		if err.Error() != problem {
			a.Log.Warn("revoked keys: a change could not be taken up, the ones before it stay revoked", "keys", len(before), "err", err)
			a.mu.Lock()
			a.status.RevokedErr = err.Error()
			a.mu.Unlock()
		}
		return
	}
	if problem != "" || !slices.Equal(list, before) {
		a.revoke(list)
		a.Log.Info("revoked keys", "keys", len(list))
	}
}

// revoke puts a list in force, over the revision in force and every later one.
func (a *Agent) revoke(list []policy.Revocation) {
	a.metrics.revoked.Set(float64(len(list)))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revoked, a.status.Revoked, a.status.RevokedErr = list, len(list), ""
	if a.compiled != nil {
		a.current.Store(a.compiled.Revoke(list))
	}
}

// Revoked are the keys that this spoke has revoked by itself. The list must not be changed.
func (a *Agent) Revoked() []policy.Revocation {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.revoked
}
