package ledger

type stub struct{}

func (stub) close() {}

var theKafka stub

func runChild(string) int { return 1 }
