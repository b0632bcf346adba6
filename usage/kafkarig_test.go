package usage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// realKafka is a real broker (one node, KRaft) of this test binary's own, which the tests share. It is started by the first
// that needs it. Tests that stop it, kill it or freeze it leave it running.
type realKafka struct {
	dir  string // temporary
	addr string
	// Listeners that want TLS and SASL, and TLS and a client certificate: see secureProperties.
	secure, mutual string
	cmd            *exec.Cmd // nil: not running
}

var theKafka realKafka

// kafkaLibs is where `make kafka` puts the jars.
const kafkaLibs = "../.tools/kafka/libs"

// startKafka returns the shared broker, running.
func startKafka(t testing.TB) *realKafka {
	t.Helper()
	k := prepareKafka(t)
	k.start(t)
	return k
}

// prepareKafka returns the shared broker, running or not.
func prepareKafka(t testing.TB) *realKafka {
	t.Helper()
	if err := theKafka.prepare(); err != nil {
		t.Fatal(err)
	}
	return &theKafka
}

// prepare formats the broker's disk, once.
func (k *realKafka) prepare() error {
	if k.dir != "" {
		return nil
	}
	if jars, _ := filepath.Glob(kafkaLibs + "/kafka_*.jar"); len(jars) == 0 {
		return errors.New("the real Kafka that this test needs is missing: run `make kafka` (or test/setup/kafka.sh) first")
	}
	dir, err := os.MkdirTemp("", "spokegate-kafka-")
	if err != nil {
		return err
	}
	ports, err := freePorts(4)
	if err != nil {
		return err
	}
	if err := writeCertificates(dir); err != nil {
		return err
	}
	var at []string
	for _, port := range ports {
		at = append(at, fmt.Sprintf("127.0.0.1:%d", port))
	}
	properties := strings.NewReplacer("BROKER", at[0], "CONTROLLER_AT", at[1], "SECURE_AT", at[2], "MUTUAL_AT", at[3], "DIR", dir).
		Replace(kafkaProperties + secureProperties)
	if err := os.WriteFile(dir+"/server.properties", []byte(properties), 0o600); err != nil {
		return err
	}
	format := javaCommand("kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", dir+"/server.properties",
		"--add-scram", "SCRAM-SHA-256=[name=door,password="+kafkaPassword+"]", "--add-scram", "SCRAM-SHA-512=[name=door,password="+kafkaPassword+"]")
	if out, err := format.CombinedOutput(); err != nil {
		return fmt.Errorf("format Kafka's disk: %w: %s", err, out)
	}
	k.dir, k.addr, k.secure, k.mutual = dir, at[0], at[2], at[3]
	return nil
}

const kafkaProperties = `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@CONTROLLER_AT
listeners=PLAINTEXT://BROKER,CONTROLLER://CONTROLLER_AT,SECURE://SECURE_AT,MUTUAL://MUTUAL_AT
advertised.listeners=PLAINTEXT://BROKER,SECURE://SECURE_AT,MUTUAL://MUTUAL_AT
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,MUTUAL:SSL
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

func javaCommand(args ...string) *exec.Cmd {
	flags := []string{"-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", kafkaLibs + "/*"}
	return exec.Command("java", append(flags, args...)...)
}

// freePorts are below those that the kernel takes for outgoing connections: the broker comes back to them after each kill.
func freePorts(n int) (ports []int, err error) {
	for try := 0; len(ports) < n && try < 1000; try++ {
		port := 10_000 + rand.IntN(10_000)
		l, busy := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err = busy; busy == nil {
			defer l.Close() // so that none comes twice
			ports = append(ports, port)
		}
	}
	if len(ports) < n {
		return nil, fmt.Errorf("no free ports: %w", err)
	}
	return ports, nil
}

// start starts the broker, if it does not run, and waits until it answers.
func (k *realKafka) start(t testing.TB) {
	t.Helper()
	if k.cmd == nil {
		k.launch(t)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		err := k.ask(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			log, _ := os.ReadFile(k.dir + "/log")
			t.Fatalf("Kafka does not answer: %v\n%s", err, log)
		}
		time.Sleep(100 * time.Millisecond) // polls a fact
	}
}

func (k *realKafka) launch(t testing.TB) {
	t.Helper()
	out, err := os.OpenFile(k.dir+"/log", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := javaCommand("kafka.Kafka", k.dir+"/server.properties")
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	k.cmd = cmd
}

// ask returns nil when the broker knows itself and a controller.
func (k *realKafka) ask(ctx context.Context) error {
	return k.with(func(c *kafka.Client) error {
		answer, err := c.Metadata(ctx, &kafka.MetadataRequest{})
		if err == nil && len(answer.Brokers) == 0 {
			err = errors.New("no broker yet")
		}
		return err
	})
}

// with calls f with a client, and leaves no connection behind.
func (k *realKafka) with(f func(*kafka.Client) error) error {
	t := &kafka.Transport{}
	defer t.CloseIdleConnections()
	return f(&kafka.Client{Addr: kafka.TCP(k.addr), Transport: t, Timeout: time.Minute})
}

// kill ends the broker as a power switch does.
func (k *realKafka) kill() {
	if k.cmd != nil {
		_ = k.cmd.Process.Kill()
		_ = k.cmd.Wait()
		k.cmd = nil
	}
}

func (k *realKafka) signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := k.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func (k *realKafka) close() {
	k.kill()
	if k.dir != "" {
		_ = os.RemoveAll(k.dir)
	}
}

func (k *realKafka) createTopic(t testing.TB, name string, partitions int, config ...kafka.ConfigEntry) {
	t.Helper()
	err := k.with(func(c *kafka.Client) error {
		answer, err := c.CreateTopics(context.Background(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
			Topic: name, NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: config,
		}}})
		if err != nil {
			return err
		}
		return answer.Errors[name]
	})
	if err != nil {
		t.Fatal(err)
	}
}

// consume returns all messages of a topic, partition by partition. A topic that does not exist has none.
func (k *realKafka) consume(t testing.TB, topic string) []kafka.Message {
	t.Helper()
	var list []kafka.Message
	err := k.with(func(c *kafka.Client) error {
		ctx := context.Background()
		meta, err := c.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
		if err != nil {
			return err
		}
		for _, p := range meta.Topics[0].Partitions {
			ends, err := c.ListOffsets(ctx, &kafka.ListOffsetsRequest{
				Topics: map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(p.ID)}},
			})
			if err != nil {
				return err
			}
			messages, err := k.consumePartition(topic, p.ID, ends.Topics[topic][0].LastOffset)
			if err != nil {
				return err
			}
			list = append(list, messages...)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("consume %s: %v", topic, err)
	}
	return list
}

func (k *realKafka) consumePartition(topic string, partition int, end int64) ([]kafka.Message, error) {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{k.addr}, Topic: topic, Partition: partition, MinBytes: 1, MaxBytes: 10 << 20, MaxWait: 100 * time.Millisecond,
	})
	defer reader.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var list []kafka.Message
	for int64(len(list)) < end {
		m, err := reader.ReadMessage(ctx)
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	return list, nil
}
