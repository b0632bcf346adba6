#!/bin/sh
# Fetches Apache Kafka's jars into .tools/kafka/libs for the tests that need a real broker: 54 MB, half a minute.
# Does nothing when the pinned version is there. Needs Java 17 or newer and Maven; on Debian, as root, it installs them.
set -eu

KAFKA=4.1.0
SCALA=2.13
SLF4J=1.7.36
PLUGIN=3.8.1 # of maven-dependency-plugin
PIN="kafka_$SCALA-$KAFKA kafka-tools-$KAFKA slf4j-simple-$SLF4J"

cd "$(dirname "$0")/../.."
home=$PWD/.tools/kafka

say() { echo "==> $*"; }
fail() { echo "kafka.sh: $*" >&2; exit 1; }

# The major version of the Java on PATH; 0: none.
java_major() {
	command -v java >/dev/null || { echo 0; return; }
	java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1 | grep . || echo 0
}

# need PACKAGE...: installs Debian packages, or says what is missing.
need() {
	if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
		fail "missing on this machine: $* (or the like). Kafka runs on Java 17 or newer, and its jars are fetched with Maven: install both, then try again"
	fi
	say "installing $*"
	apt-get update -qq >&2
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >&2 ||
		fail "apt-get could not install $*: install Java 17 or newer and Maven by hand, then try again"
}

missing=
[ "$(java_major)" -ge 17 ] || missing="default-jre-headless"
if [ "$(cat "$home/pin" 2>/dev/null)" = "$PIN" ]; then
	[ -z "$missing" ] || need "$missing"
	say "Kafka $KAFKA is in .tools/kafka"
	exit 0
fi
command -v mvn >/dev/null || missing="$missing maven"
# shellcheck disable=SC2086 # one word a package
[ -z "$missing" ] || need $missing
[ "$(java_major)" -ge 17 ] || fail "Java $(java_major) is too old: Kafka $KAFKA runs on Java 17 or newer"

say "fetching Kafka $KAFKA with Maven (54 MB)"
mkdir -p "$home"
cat >"$home/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>spokegate.test</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_$SCALA</artifactId><version>$KAFKA</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>$KAFKA</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>$SLF4J</version></dependency>
  </dependencies>
</project>
POM
rm -rf "$home/libs.new"
# -C: a check sum that does not fit is an error.
mvn -q -B -C -f "$home/pom.xml" "org.apache.maven.plugins:maven-dependency-plugin:$PLUGIN:copy-dependencies" \
	-DincludeScope=runtime -DoutputDirectory="$home/libs.new" >&2 || fail "Maven could not fetch the jars: see above"
rm -rf "$home/libs"
mv "$home/libs.new" "$home/libs"
echo "$PIN" >"$home/pin"
say "Kafka $KAFKA is in .tools/kafka ($(du -sh "$home/libs" | cut -f1))"
