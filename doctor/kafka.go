package doctor

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/spokegate/spokegate/usage"
)

// Topics of records that a bill rests on are kept for a month at least.
const (
	leastRetention   = 32 * 24 * time.Hour
	leastMessage     = 1 << 20
	topicPrefix      = "spokegate."
	wantReplicas     = 2
	retention        = "retention.ms"
	maxMessageConfig = "max.message.bytes"
)

// checkKafka looks at the Kafka that doors ship to.
func checkKafka(ctx context.Context, e *exam) {
	brokers, security := e.Kafka, e.Security
	for _, p := range e.of("door", "worker") {
		if len(brokers) == 0 && p.flag("kafka") != "" && p.here {
			brokers = strings.Split(p.flag("kafka"), ",")
			security = usage.KafkaSecurity{TLS: p.flag("kafka-tls") == "true", CA: p.path("kafka-ca"), Cert: p.path("kafka-cert"), Key: p.path("kafka-key"),
				SASL: p.flag("kafka-sasl")}
			if security.SASL != "" { // a page might name any broker, and any file of who runs this
				e.found("kafka-secret", p.where(), "%s, user %s", p.flag("kafka"), p.flag("kafka-user"))
				return
			}
		}
	}
	if len(brokers) == 0 {
		return
	}
	where := "kafka " + strings.Join(brokers, ",")
	encrypt, login, err := security.Load()
	if err != nil {
		e.found("kafka-unreachable", where, "%v", err)
		return
	}
	transport := &kafka.Transport{DialTimeout: askTime, ClientID: "spokegate-doctor", TLS: encrypt, SASL: login}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(brokers...), Transport: transport, Timeout: askTime}
	var topics []string
	for _, kind := range usage.Kinds() {
		topics = append(topics, topicPrefix+kind)
	}
	meta, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: topics})
	if err != nil {
		e.found("kafka-unreachable", where, "%v", err)
		return
	}
	e.say("kafka-unreachable", where, false, "%d brokers answer", len(meta.Brokers))
	var there []string
	for _, t := range meta.Topics {
		missing := errors.Is(t.Error, kafka.UnknownTopicOrPartition)
		e.say("kafka-topic", where+" "+t.Name, missing, "%s", map[bool]string{true: "it does not exist", false: "it exists"}[missing])
		if !missing {
			there = append(there, t.Name)
			e.judgeTopic(where+" "+t.Name, t)
		}
	}
	e.topicConfigs(ctx, client, where, there)
}

func (e *exam) judgeTopic(where string, t kafka.Topic) {
	least, offline := 0, 0
	for _, p := range t.Partitions {
		if n := len(p.Replicas); least == 0 || n < least {
			least = n
		}
		if p.Error != nil || p.Leader.Host == "" || len(p.Isr) == 0 {
			offline++
		}
	}
	e.say("kafka-replicas", where, least < wantReplicas, "%d partitions, at least %d replicas each", len(t.Partitions), least)
	e.say("kafka-offline", where, offline > 0, "partitions that take nothing: %d of %d", offline, len(t.Partitions))
}

func (e *exam) topicConfigs(ctx context.Context, client *kafka.Client, where string, topics []string) {
	if len(topics) == 0 {
		return
	}
	req := &kafka.DescribeConfigsRequest{}
	for _, t := range topics {
		req.Resources = append(req.Resources, kafka.DescribeConfigRequestResource{ResourceType: kafka.ResourceTypeTopic, ResourceName: t,
			ConfigNames: []string{retention, maxMessageConfig}})
	}
	answer, err := client.DescribeConfigs(ctx, req)
	if err != nil {
		return // who may write may not always ask
	}
	billed := []string{topicPrefix + usage.KindAdmitted, topicPrefix + usage.KindServed, topicPrefix + usage.KindUsage}
	for _, r := range answer.Resources {
		for _, c := range r.ConfigEntries {
			n := node{c.ConfigValue}.number(-1)
			switch c.ConfigName {
			case retention:
				if slices.Contains(billed, r.ResourceName) {
					e.say("kafka-retention", where+" "+r.ResourceName, n >= 0 && n < float64(leastRetention.Milliseconds()), "%s is %s", retention, c.ConfigValue)
				}
			case maxMessageConfig:
				e.say("kafka-message-size", where+" "+r.ResourceName, n >= 0 && n < leastMessage, "%s is %s", maxMessageConfig, c.ConfigValue)
			}
		}
	}
}
