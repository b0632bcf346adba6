package limits

import (
	"context"
	_ "embed"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed redis_common.lua
	commonLua string
	//go:embed redis_acquire.lua
	acquireLua string
	//go:embed redis_renew.lua
	renewLua string
	//go:embed redis_restore.lua
	restoreLua string
	//go:embed redis_release.lua
	releaseLua string
	//go:embed redis_look.lua
	lookLua string
	//go:embed redis_raise.lua
	raiseLua string
	//go:embed redis_announce.lua
	announceLua string
)

// scripts are named by the hash of their text, so doors of two versions may share a Redis.
type scripts struct {
	acquire, renew, restore, release, look, raise, announce *redis.Script
}

func newScripts() scripts {
	script := func(text string) *redis.Script { return redis.NewScript(commonLua + text) }
	return scripts{
		acquire: script(acquireLua), renew: script(renewLua), restore: script(restoreLua), release: script(releaseLua),
		look: script(lookLua), raise: script(raiseLua), announce: script(announceLua),
	}
}

// call is one run of a script.
type call struct {
	keys []string
	args []any
}

// runAll runs a script once for each call, in one round trip; in a second one those that Redis did not know the script of.
// Script.Run does the same for one call. The script must be harmless when run again. Each reply may have an error of its own
// besides.
func runAll(ctx context.Context, c redis.UniversalClient, s *redis.Script, calls []call) ([]*redis.Cmd, error) {
	p := c.Pipeline()
	replies := make([]*redis.Cmd, len(calls))
	for i := range calls {
		replies[i] = p.EvalSha(ctx, s.Hash(), calls[i].keys, calls[i].args...)
	}
	_, err := p.Exec(ctx)
	if err == nil {
		return replies, nil
	}
	again := c.Pipeline()
	for i := range replies {
		switch err := replies[i].Err(); {
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			replies[i] = s.Eval(ctx, again, calls[i].keys, calls[i].args...)
		case err != nil:
			return nil, err
		}
	}
	if again.Len() == 0 {
		return nil, err
	}
	_, err = again.Exec(ctx)
	return replies, err
}
