package envoy

import "path/filepath"

// deployment puts the door process into each of the gateway's pods: started before Envoy and ended after it. Both run as the
// same user, so the socket between them is open to nobody else; the door sees Envoy's process, and so its death.
func (g Gateway) deployment() Object {
	run := filepath.Dir(g.Door.DoorSocket)
	mount := func(name, path string) Object { return Object{"name": name, "mountPath": path} }
	empty := func(name string) Object { return Object{"name": name, "emptyDir": Object{}} }
	secret := mount("door-secrets", SidecarSecrets)
	secret["readOnly"] = true
	door := Object{
		"name": "door", "image": g.Sidecar.Image, "restartPolicy": "Always",
		"args": append(list{"door", "-gateway", "envoy-gateway", "-name", "$(POD_NAME)", "-dir", g.Sidecar.Dir}, texts(g.Sidecar.Args)...),
		"env": list{
			Object{"name": "POD_NAME", "valueFrom": Object{"fieldRef": Object{"fieldPath": "metadata.name"}}},
			Object{"name": "SPOKEGATE_REDIS", "valueFrom": Object{"secretKeyRef": Object{"name": g.Sidecar.Secret, "key": SidecarRedis, "optional": true}}},
		},
		"ports": list{
			Object{"name": "joins", "containerPort": g.Sidecar.Joins},
			Object{"name": "ops", "containerPort": g.Sidecar.Ops},
		},
		"startupProbe":    Object{"httpGet": Object{"path": "/healthz", "port": "ops"}, "periodSeconds": 1, "failureThreshold": 300},
		"livenessProbe":   Object{"httpGet": Object{"path": "/healthz", "port": "ops"}, "periodSeconds": 10},
		"resources":       Object{"requests": Object{"cpu": "500m", "memory": "512Mi"}, "limits": Object{"memory": "4Gi"}},
		"volumeMounts":    list{mount("door-state", g.Sidecar.Dir), mount("door-run", run), secret},
		"securityContext": restricted(),
	}
	return Object{
		"initContainers": list{door},
		"container":      Object{"volumeMounts": list{mount("door-run", run)}},
		"pod": Object{"volumes": list{
			empty("door-state"), empty("door-run"),
			Object{"name": "door-secrets", "secret": Object{"secretName": g.Sidecar.Secret, "optional": true}},
		}},
		"patch": Object{"type": "StrategicMerge", "value": Object{"spec": Object{"template": Object{"spec": Object{
			"shareProcessNamespace": true,
		}}}}},
	}
}

func restricted() Object {
	return Object{
		"runAsNonRoot": true, "runAsUser": gatewayUser, "runAsGroup": gatewayUser, "readOnlyRootFilesystem": true,
		"allowPrivilegeEscalation": false, "capabilities": Object{"drop": list{"ALL"}}, "seccompProfile": Object{"type": "RuntimeDefault"},
	}
}

// gatewayUser is who Envoy Gateway runs Envoy as.
const gatewayUser = 65532

// joinService is where workers find all doors. The pods are where Envoy Gateway puts them: in its own namespace, unless it is
// told otherwise.
func (g Gateway) joinService() Object {
	s := g.object("v1", "Service", g.Name+"-doors", Object{
		"clusterIP": "None", "publishNotReadyAddresses": true,
		"selector": Object{
			envoyGroup + "/owning-gateway-name": g.Name, envoyGroup + "/owning-gateway-namespace": g.Namespace,
		},
		"ports": list{Object{"name": "joins", "port": g.Sidecar.Joins, "targetPort": "joins"}},
	})
	s["metadata"].(Object)["namespace"] = gatewayNamespace
	return s
}

const gatewayNamespace = "envoy-gateway-system"

func texts(ss []string) (out list) {
	for _, s := range ss {
		out = append(out, s)
	}
	return out
}
