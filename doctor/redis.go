package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/spokegate/spokegate/limits"
)

var storeKinds = []Kind{
	{"redis-unreachable", "stores", Fault, "each door counts by itself: limits hold for its share alone, and what was counted before is not known", "is Redis up, and -redis right? Until then doors go on"},
	{"redis-secret", "stores", CannotTell, "the door's Redis has a password, which it does not tell", "give -redis, or $SPOKEGATE_REDIS"},
	{"redis-differs", "stores", Fault, "doors of one spoke count in different places: every limit counts more than once", "the same -redis for all doors of a spoke"},
	{"redis-none", "stores", Warning, "several doors of one spoke count in memory: every limit holds for each of them alone", "-redis for all of them"},
	{"redis-version", "stores", Fault, "functions and ZADD GT are missing", "Redis 7.0 or newer, or Valkey"},
	{"redis-evicts", "stores", Fault, "under pressure it drops counters: limits begin anew", "maxmemory-policy noeviction"},
	{"redis-memory", "stores", Warning, "when it is full every decision fails, and doors count by themselves", "more maxmemory"},
	{"redis-forgets", "stores", Note, "after a restart counters of minutes are gone; those of days and months doors put back as far as they have seen them", "appendonly yes, appendfsync everysec"},
	{"redis-replica", "stores", Fault, "a replica takes no writes", "-redis must name the primary, or a cluster"},
	{"redis-cluster", "stores", Fault, "a cluster wants to be asked as one, and a single server does not", "add ?cluster=true to -redis, or take it away"},
	{"redis-slow", "stores", Warning, "its answers come near -redis-timeout: doors will fall back to counting by themselves", "a Redis nearer by, with cores of its own; or a longer -redis-timeout"},
	{"redis-unsaid", "stores", CannotTell, "this Redis does not tell that much of itself", "ask who runs it: noeviction, persistence"},
	{"kafka-unreachable", "stores", Fault, "records stay in spools on disk, which are bounded", "are the brokers up, and -kafka right? Behind TLS or SASL give doctor the same flags as the door"},
	{"kafka-secret", "stores", CannotTell, "the door's Kafka wants a password, which is not sent on the word of a page", "give -kafka and the door's other flags of Kafka"},
	{"kafka-topic", "stores", Note, "it is made with the cluster's defaults when the first record is shipped, where that is allowed", "make it beforehand, with the partitions, replicas and retention that you want"},
	{"kafka-replicas", "stores", Warning, "records are lost with one broker's disk", "replication factor 3 and min.insync.replicas 2"},
	{"kafka-offline", "stores", Fault, "a partition has no leader, or fewer replicas in sync than it must: nothing is taken for it", "bring its brokers back"},
	{"kafka-retention", "stores", Warning, "records are gone before a month is billed, and the ledger cannot be made anew", "retention.ms of 35 days or more on spokegate.usage, served and admitted, or an export"},
	{"kafka-message-size", "stores", Warning, "requests of up to 768 KiB of records are sent; below that large ones are put aside", "max.message.bytes of at least 1 MiB, Kafka's default"},
}

const (
	leastRedis = 7
	pings      = 20
)

// checkRedis looks at the Redis of each spoke.
func checkRedis(ctx context.Context, e *exam) {
	redis.SetLogger(&logging.VoidLogger{})
	bySpoke := map[string][]string{}
	doors := e.of("door")
	for _, d := range doors {
		bySpoke[d.about.Spoke] = append(bySpoke[d.about.Spoke], d.flag("redis"))
	}
	urls := []string{e.Redis}
	for _, d := range doors {
		of := unique(bySpoke[d.about.Spoke])
		switch {
		case len(bySpoke[d.about.Spoke]) == 1:
		case len(of) == 0:
			e.found("redis-none", "spoke "+d.about.Spoke, "%d doors", len(bySpoke[d.about.Spoke]))
		default:
			e.say("redis-differs", "spoke "+d.about.Spoke, len(of) > 1 || slices.Contains(bySpoke[d.about.Spoke], ""), "%s", strings.Join(bySpoke[d.about.Spoke], ", "))
		}
		switch at := d.flag("redis"); {
		case at == "" || e.Redis != "":
		case strings.Contains(at, "…"):
			e.found("redis-secret", d.where(), "%s", at)
		default:
			urls = append(urls, at)
		}
	}
	for _, u := range unique(urls) {
		e.examineRedis(ctx, u)
	}
}

// patience is the shortest -redis-timeout of doors.
func (e *exam) redisPatience() time.Duration {
	least := e.RedisTimeout
	for _, d := range e.of("door") {
		if t, err := time.ParseDuration(d.flag("redis-timeout")); err == nil && (least == 0 || t < least) {
			least = t
		}
	}
	if least == 0 {
		return 150 * time.Millisecond
	}
	return least
}

func (e *exam) examineRedis(ctx context.Context, url string) {
	where := "redis " + Public(url)
	o, err := limits.ParseRedisURL(url)
	if err != nil {
		e.found("redis-unreachable", where, "%v", err)
		return
	}
	clustered := o.IsClusterMode
	o.DialTimeout, o.ReadTimeout, o.MaxRetries, o.ContextTimeoutEnabled = askTime, askTime, -1, true
	client := redis.NewUniversalClient(o)
	defer client.Close()
	if err := client.Ping(ctx).Err(); err != nil {
		id := "redis-unreachable"
		if strings.Contains(err.Error(), "cluster support disabled") {
			id = "redis-cluster"
		}
		e.found(id, where, "%v", err)
		return
	}
	e.say("redis-unreachable", where, false, "it answers")
	e.redisTimes(ctx, client, where)
	info, err := client.Info(ctx).Result()
	if err != nil {
		e.found("redis-unsaid", where, "INFO: %v", err)
		return
	}
	said := map[string]string{}
	for line := range strings.Lines(info) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			said[k] = v
		}
	}
	e.judgeRedis(where, said, clustered)
}

// redisTimes measures how fast it answers, and its clock.
func (e *exam) redisTimes(ctx context.Context, client redis.UniversalClient, where string) {
	var longest []time.Duration
	for range pings {
		before := time.Now()
		if client.Ping(ctx).Err() != nil {
			break
		}
		longest = append(longest, time.Since(before))
	}
	if len(longest) > 0 {
		slices.Sort(longest)
		p90, patience := longest[len(longest)*9/10], e.redisPatience()
		e.say("redis-slow", where, p90 > patience/2, "nine of ten pings take at most %v; -redis-timeout is %v", p90.Round(10*time.Microsecond), patience)
	}
	before := time.Now()
	at, err := client.Time(ctx).Result()
	if err == nil {
		trip := time.Since(before)
		e.clock(where, at.Sub(before.Add(trip/2)), trip)
	}
}

func (e *exam) judgeRedis(where string, said map[string]string, clustered bool) {
	version := said["redis_version"]
	major := 0
	_, _ = fmt.Sscanf(version, "%d.", &major)
	e.say("redis-version", where, major < leastRedis, "version %s", version)
	if role := said["role"]; role != "" && !clustered {
		e.say("redis-replica", where, role != "master", "its role is %s", role)
	}
	if c := said["cluster_enabled"]; c != "" {
		e.say("redis-cluster", where, (c == "1") != clustered, "cluster_enabled is %s", c)
	}
	policy, most := said["maxmemory_policy"], node{said["maxmemory"]}.number(0)
	if policy == "" {
		e.found("redis-unsaid", where, "INFO has no maxmemory_policy")
	} else {
		e.say("redis-evicts", where, policy != "noeviction", "maxmemory_policy is %s, maxmemory %.0f", policy, most)
	}
	if most > 0 {
		e.say("redis-memory", where, node{said["used_memory"]}.number(0) > 0.8*most, "%s of %.0f bytes are used", said["used_memory"], most)
	}
	e.say("redis-forgets", where, said["aof_enabled"] == "0", "aof_enabled is %s", said["aof_enabled"])
}
