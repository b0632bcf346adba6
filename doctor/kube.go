package doctor

import "context"

var kubeKinds []Kind

func checkKube(context.Context, *exam) {}
