package test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"google.golang.org/protobuf/proto"

	usagev1 "github.com/spokegate/spokegate/api/usage/v1"
	"github.com/spokegate/spokegate/usage"
)

// broker is a real Kafka of one node.
type broker struct {
	dir, addr string
	libs      string // where `make kafka` puts the jars
	running   *up    // its process
}

const brokerProperties = `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@CONTROLLER_AT
listeners=PLAINTEXT://BROKER,CONTROLLER://CONTROLLER_AT
advertised.listeners=PLAINTEXT://BROKER
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=DIR/data
num.partitions=3
default.replication.factor=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.cleaner.enable=false
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
`

// newBroker makes its folder; it does not run yet.
func newBroker(t testing.TB) *broker {
	t.Helper()
	k := &broker{dir: t.TempDir(), addr: freeAddr(), libs: filepath.Join(lab.root, ".tools", "kafka", "libs")}
	if jars, _ := filepath.Glob(k.libs + "/kafka_*.jar"); len(jars) == 0 {
		t.Fatal("the real Kafka that this test needs is missing: run `make kafka`")
	}
	text := strings.NewReplacer("BROKER", k.addr, "CONTROLLER_AT", freeAddr(), "DIR", k.dir).Replace(brokerProperties)
	if err := os.WriteFile(k.dir+"/server.properties", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.kill)
	return k
}

func (k *broker) java(args ...string) *exec.Cmd {
	flags := []string{"-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", k.libs + "/*"}
	cmd := exec.Command("java", append(flags, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// start starts it, for the first time or again, and does not wait.
func (k *broker) start() error {
	if _, err := os.Stat(k.dir + "/data"); err != nil {
		format := k.java("kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", k.dir+"/server.properties")
		if out, err := format.CombinedOutput(); err != nil {
			return fmt.Errorf("format Kafka's disk: %w: %s", err, out)
		}
	}
	p := &up{name: "kafka", cmd: k.java("kafka.Kafka", k.dir+"/server.properties"), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.begin(); err != nil {
		return err
	}
	k.running = p
	return nil
}

// kill ends it as a power switch does.
func (k *broker) kill() {
	if k.running != nil {
		_ = k.running.cmd.Process.Kill()
		<-k.running.exited
		k.running = nil
	}
}

// messages are all of a topic. There is none where there is no topic.
func (k *broker) messages(ctx context.Context, topic string) ([]kafka.Message, error) {
	t := &kafka.Transport{}
	defer t.CloseIdleConnections()
	c := &kafka.Client{Addr: kafka.TCP(k.addr), Transport: t, Timeout: time.Minute}
	meta, err := c.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return nil, err
	}
	if err := meta.Topics[0].Error; err != nil {
		return nil, fmt.Errorf("%s: %w", topic, err)
	}
	var all []kafka.Message
	for _, p := range meta.Topics[0].Partitions {
		ask := &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(p.ID)}}}
		ends, err := c.ListOffsets(ctx, ask)
		for errors.Is(err, kafka.BrokerNotAvailable) && ctx.Err() == nil { // the client has yet to learn who leads
			time.Sleep(100 * time.Millisecond)
			ends, err = c.ListOffsets(ctx, ask)
		}
		if err != nil {
			return nil, err
		}
		r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{k.addr}, Topic: topic, Partition: p.ID, MinBytes: 1, MaxBytes: 10 << 20, MaxWait: 100 * time.Millisecond})
		for range ends.Topics[topic][0].LastOffset {
			m, err := r.ReadMessage(ctx)
			if err != nil {
				return nil, errors.Join(err, r.Close())
			}
			all = append(all, m)
		}
		if err := r.Close(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// holds wants every one of these records, by id, in the topic of its kind, as a CloudEvent of its team, and nothing else.
// A record may be there twice, never in two forms. twice is how many are.
func (k *broker) holds(want map[string]*usagev1.Record) (twice int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), kafkaPatience)
	defer cancel()
	missing := maps.Clone(want)
	topics := map[string]bool{}
	for _, r := range want {
		topics[topicOf(r)] = true
	}
	for topic := range topics {
		messages, err := k.messages(ctx, topic)
		if err != nil {
			return 0, err
		}
		for _, m := range messages {
			if attribute(m, "ce_type") == "spokegate.checkpoint.v1" {
				continue // about no request
			}
			r := want[attribute(m, "ce_id")]
			if r == nil || topicOf(r) != topic {
				return 0, fmt.Errorf("%s has %s, which is in no journal", m.Topic, m.Value)
			}
			if missing[r.GetId()] == nil {
				twice++
			}
			delete(missing, r.GetId())
			if err := sameEvent(m, r); err != nil {
				return 0, err
			}
		}
	}
	for id := range missing {
		return 0, fmt.Errorf("%d of %d records are not in Kafka, such as %s", len(missing), len(want), id)
	}
	return twice, nil
}

// topicOf is where a record must go.
func topicOf(r *usagev1.Record) string {
	switch r.GetKind() {
	case usage.KindProbe:
		return "spokegate.served"
	case usage.KindEngine:
		return "spokegate.balance"
	}
	return "spokegate." + r.GetKind()
}

func attribute(m kafka.Message, key string) string {
	for _, h := range m.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// sameEvent compares a message with what the record must become.
func sameEvent(m kafka.Message, r *usagev1.Record) error {
	at := r.GetEndedAt()
	if at == nil {
		at = r.GetAdmittedAt()
	}
	want := map[string]string{
		"content-type": "application/json", "ce_specversion": "1.0", "ce_id": r.GetId(), "ce_source": r.GetSource(),
		"ce_type": "spokegate." + r.GetKind() + ".v1", "ce_time": at.AsTime().Format(time.RFC3339Nano), "ce_subject": r.GetAdmission(),
		"ce_partitionkey": r.GetTeam(), "ce_dataschema": usage.DataSchema, "ce_sequence": fmt.Sprintf("%020d", r.GetSequence()),
	}
	maps.DeleteFunc(want, func(_, v string) bool { return v == "" }) // CloudEvents has no empty attributes
	got := map[string]string{}
	for _, h := range m.Headers {
		got[h.Key] = string(h.Value)
	}
	if !maps.Equal(got, want) || len(m.Headers) != len(want) || string(m.Key) != r.GetTeam() {
		return fmt.Errorf("key %q, headers %v; want key %q, headers %v", m.Key, got, r.GetTeam(), want)
	}
	value, err := usage.ParseJSON(m.Value)
	if err != nil || !proto.Equal(value, r) {
		return fmt.Errorf("the message %s is not the record %s: %w", m.Value, usage.AppendJSON(nil, r), err)
	}
	return nil
}
