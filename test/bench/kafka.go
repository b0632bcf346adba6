package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

// broker is a real Kafka of this run's own: one node, on this machine's disk.
type broker struct {
	address string
	process *process
}

const brokerProperties = `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@CONTROLLER
listeners=PLAINTEXT://BROKER,CONTROLLER://CONTROLLER
advertised.listeners=PLAINTEXT://BROKER
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=DIR/kafka
offsets.topic.replication.factor=1
auto.create.topics.enable=false
`

// kafkaLibs is where `make kafka` puts the jars.
const kafkaLibs = ".tools/kafka/libs"

// partitionsEach topic has.
const partitionsEach = 3

func startBroker(ctx context.Context, dir string) (*broker, error) {
	if jars, _ := filepath.Glob(kafkaLibs + "/kafka_*.jar"); len(jars) == 0 {
		return nil, errors.New("there is no Kafka; run `make kafka` first")
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	properties := filepath.Join(dir, "server.properties")
	text := strings.NewReplacer("BROKER", ports[0], "CONTROLLER://CONTROLLER", "CONTROLLER://"+ports[1],
		"@CONTROLLER", "@"+ports[1], "DIR", dir).Replace(brokerProperties)
	if err := os.WriteFile(properties, []byte(text), 0o600); err != nil {
		return nil, err
	}
	java := []string{"java", "-Xmx512m", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", kafkaLibs + "/*"}
	format, err := start(dir, "kafka-format", append(java, "kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", properties)...)
	if err != nil {
		return nil, err
	}
	<-format.ended
	if !format.cmd.ProcessState.Success() {
		return nil, format.died()
	}
	k := &broker{address: ports[0]}
	if k.process, err = start(dir, "kafka", append(java, "kafka.Kafka", properties)...); err != nil {
		return nil, err
	}
	if err := k.await(ctx); err != nil {
		k.process.stop()
		return nil, err
	}
	return k, nil
}

// await waits until the broker knows itself.
func (k *broker) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		err := k.with(func(c *kafka.Client) error {
			answer, err := c.Metadata(ctx, &kafka.MetadataRequest{})
			if err == nil && len(answer.Brokers) == 0 {
				err = errors.New("no broker yet")
			}
			return err
		})
		if err == nil {
			return nil
		}
		if died := k.process.died(); died != nil {
			return died
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no answer of Kafka: %w", err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// with calls f with a client, and leaves no connection behind.
func (k *broker) with(f func(*kafka.Client) error) error {
	t := &kafka.Transport{}
	defer t.CloseIdleConnections()
	return f(&kafka.Client{Addr: kafka.TCP(k.address), Transport: t, Timeout: 5 * time.Second})
}

func (k *broker) topic(ctx context.Context, name string) error {
	return k.with(func(c *kafka.Client) error {
		answer, err := c.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
			Topic: name, NumPartitions: partitionsEach, ReplicationFactor: 1}}})
		if err != nil {
			return err
		}
		return answer.Errors[name]
	})
}

// read gives all messages of a topic, ready to be sent again. They number journaled.
func (k *broker) read(ctx context.Context, topic string) (all []kafka.Message, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for partition := range partitionsEach {
		r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{k.address}, Topic: topic, Partition: partition, MaxBytes: 10 << 20, MaxWait: 100 * time.Millisecond})
		defer r.Close()
		lag, err := r.ReadLag(ctx)
		if err != nil {
			return nil, err
		}
		for range lag {
			m, err := r.ReadMessage(ctx)
			if err != nil {
				return nil, err
			}
			all = append(all, kafka.Message{Key: m.Key, Value: m.Value, Headers: m.Headers})
		}
	}
	if len(all) != journaled {
		return nil, fmt.Errorf("%d messages in Kafka, want %d", len(all), journaled)
	}
	return all, nil
}
