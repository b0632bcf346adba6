//go:build monitoring

package monitoring

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const brokerProperties = `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@CONTROLLER_AT
listeners=PLAINTEXT://BROKER,CONTROLLER://CONTROLLER_AT
advertised.listeners=PLAINTEXT://BROKER
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=DIR/data
default.replication.factor=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
`

// newBroker starts the real Kafka in a folder of its own, and answers its address once it listens.
func newBroker(t *testing.T, dir string) string {
	t.Helper()
	libs, err := filepath.Abs("../../.tools/kafka/libs")
	if jars, _ := filepath.Glob(libs + "/kafka_*.jar"); err != nil || len(jars) == 0 {
		t.Fatalf("the real Kafka is missing: run `make kafka` (%v)", err)
	}
	address := free(t)
	text := strings.NewReplacer("BROKER", address, "CONTROLLER_AT", free(t), "DIR", dir).Replace(brokerProperties)
	properties := filepath.Join(dir, "server.properties")
	if err := os.WriteFile(properties, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	java := []string{"java", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", libs + "/*"}
	format := exec.Command(java[0], append(java[1:], "kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", properties)...)
	if out, err := format.CombinedOutput(); err != nil {
		t.Fatalf("format Kafka's disk: %v\n%s", err, out)
	}
	start(t, dir, "kafka", append(java, "kafka.Kafka", properties)...)
	eventually(t, func() error {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return fmt.Errorf("Kafka is not up: %w", err)
		}
		return c.Close()
	})
	return address
}
