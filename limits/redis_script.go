package limits

import (
	"context"
	_ "embed"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed redis_acquire.lua
	acquireLua string
	//go:embed redis_renew.lua
	renewLua string
	//go:embed redis_release.lua
	releaseLua string
	//go:embed redis_announce.lua
	announceLua string
)

// scripts are named by the hash of their text, so doors of two versions may share a Redis.
type scripts struct {
	acquire, renew, release, announce *redis.Script
}

func newScripts() scripts {
	return scripts{redis.NewScript(acquireLua), redis.NewScript(renewLua), redis.NewScript(releaseLua), redis.NewScript(announceLua)}
}

// call is one run of a script.
type call struct {
	keys []string
	args []any
}

// runAll runs a script once for each call, in one round trip; in a second one those that Redis did not know the script of.
// Script.Run does the same for one call. The script must be harmless when run again.
func runAll(ctx context.Context, c redis.UniversalClient, s *redis.Script, calls []call) error {
	p := c.Pipeline()
	for i := range calls {
		p.EvalSha(ctx, s.Hash(), calls[i].keys, calls[i].args...)
	}
	cmds, err := p.Exec(ctx)
	if err == nil {
		return nil
	}
	again := c.Pipeline()
	for i, cmd := range cmds {
		switch err := cmd.Err(); {
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			s.Eval(ctx, again, calls[i].keys, calls[i].args...)
		case err != nil:
			return err
		}
	}
	if again.Len() == 0 {
		return err
	}
	_, err = again.Exec(ctx)
	return err
}
