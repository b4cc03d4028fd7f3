package chart

import (
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"sigs.k8s.io/yaml"
)

// shown is what the chart renders with a value. Texts are of objects, as text prints them, or of the notes.
type shown struct {
	value any
	with  vals     // further values that it needs
	want  []string // texts that are rendered with it, and not without
	gone  []string // texts that are rendered without it, and not with it
}

// effects are values of which each does something, by their paths.
var effects = map[string]shown{
	"image.registry": {
		value: "mirror.example:5000/a",
		want:  []string{"image: mirror.example:5000/a/diapause-agent:1\n"},
	},
	"image.repository": {value: "other", want: []string{"image: localhost/other:1\n"}},
	"image.tag":        {value: "v2", want: []string{"image: localhost/diapause-agent:v2\n"}},
	"image.digest":     {value: digest, want: []string{"image: localhost/diapause-agent@" + digest + "\n"}},
	"image.pullPolicy": {
		value: "Always",
		want:  []string{"imagePullPolicy: Always\n"},
		gone:  []string{"IfNotPresent"},
	},
	"image.pullSecrets":             {value: []any{"pull"}, want: []string{"imagePullSecrets:\n- name: pull\n"}},
	"store.url":                     {value: "s3://b/p?region=r", want: args("--store=s3://b/p?region=r")},
	"store.id":                      {value: "abc", want: args("--store-id=abc")},
	"store.acceptNetworkDirectory":  {value: true, want: args("--accept-network-directory")},
	"store.orphanAge":               {value: "0", want: args("--orphan-age=0")},
	"store.credentials.agentSecret": {value: "s1", want: mounted("credentials", "bucket-credentials", "s1", 256)},
	"store.encryptionKeysSecret":    {value: "s3", want: mounted("keys", "encryption-keys", "s3", 256)},
	"store.credentials.controllerSecret": {
		value: "s2", want: append(mounted("credentials", "bucket-credentials", "s2", 288), "fsGroup: 65532\n"),
	},
	"store.signing.secret": {value: "s4", want: []string{
		"- --signing-key=/etc/diapause/signing/signing.pem\n", "mountPath: /etc/diapause/signing\n", "secretName: s4\n",
	}},
	"store.signing.requireTrusted": {
		value: true, with: set("store.signing.secret", "s4"),
		want: []string{"- --trusted-keys=/etc/diapause/signing/trusted.pem\n"},
	},
	"proxy.https":         {value: "http://p:3128", want: []string{"name: HTTPS_PROXY\n", "value: http://p:3128\n"}},
	"proxy.exclude":       {value: "10.0.0.1", want: []string{"name: NO_PROXY\n", "value: 10.0.0.1\n"}},
	"budgets.arena":       {value: 8589934592, want: args("--arena=8589934592")},
	"budgets.precopyFrom": {value: 0, want: args("--precopy-from=0")},
	"budgets.precopyTime": {value: "1m30s", want: args("--precopy-time=1m30s")},
	"budgets.checkpointMemory": {
		value: 8589934592.0,
		want:  append(args("--checkpoint-memory=8589934592"), `memory: "10737418240"`),
		gone:  []string{"memory: 5Gi\n"},
	},
	"budgets.diskFloor":       {value: 20, want: args("--disk-floor=20")},
	"budgets.readyMemory":     {value: 536870912, want: args("--ready-memory=536870912")},
	"budgets.wakeReserve":     {value: 0, want: args("--wake-reserve=0")},
	"budgets.backlogSize":     {value: 68719476736, want: args("--backlog-size=68719476736")},
	"budgets.backlogCount":    {value: 7, want: args("--backlog-count=7")},
	"budgets.volumeLimit":     {value: 1073741824, want: args("--volume-limit=1073741824")},
	"budgets.cacheSize":       {value: 1073741824, want: args("--cache-size=1073741824")},
	"budgets.captureTime":     {value: "30s", want: args("--capture-time=30s")},
	"install.runsc":           {value: "fast", want: args("--runsc=fast")},
	"install.runscFlags":      {value: vals{"directfs": false}, want: args("--runsc-flag=directfs=false")},
	"install.restart":         {value: "systemctl restart k3s", want: args("--restart=systemctl restart k3s")},
	"install.endSleepingPods": {value: true, want: args("--end-sleeping-pods")},
	"paths.programs": {
		value: "/var/diapause",
		want: append(args("--dir=/var/diapause", "--runsc-config=/var/diapause/runsc.toml"),
			"mountPath: /var/diapause\n", "path: /var/diapause\n"),
		gone: []string{"/opt/diapause"},
	},
	"paths.containerdSocket": {
		value: "/run/k3s/containerd/containerd.sock",
		want: append(args("--containerd=/run/k3s/containerd/containerd.sock"),
			"mountPath: /run/k3s/containerd\n", "path: /run/k3s/containerd\n"),
		gone: []string{"/run/containerd"},
	},
	"paths.containerdConfig": {value: "/etc/c.toml", want: args("--containerd-config=/etc/c.toml")},
	"paths.dropIn":           {value: "/etc/d/d.toml", want: args("--drop-in=/etc/d/d.toml")},
	"agent.nodeSelector": {
		value: vals{"pool": "a"},
		want:  []string{"pool: a\n", "scheduling:\nnodeSelector:\npool: a\n"},
	},
	"agent.tolerations": {
		value: []any{vals{"key": "k"}},
		want:  []string{"- key: k\n"},
		gone:  []string{"- operator: Exists\n"},
	},
	"agent.affinity": {value: vals{"nodeAffinity": vals{}}, want: []string{"nodeAffinity: {}\n"}},
	"agent.priorityClassName": {
		value: "mine",
		want:  []string{"priorityClassName: mine\n", "- mine\n"},
		gone:  []string{"system-node-critical"},
	},
	"agent.updateStrategy": {
		value: "OnDelete",
		want:  []string{"updateStrategy:\ntype: OnDelete\n"},
		gone:  []string{"rollingUpdate:"},
	},
	"agent.maxUnavailable": {
		value: 3,
		want:  []string{"rollingUpdate:\nmaxUnavailable: 3\n"},
		gone:  []string{"maxUnavailable: 10%"},
	},
	"agent.requests": {
		value: vals{"cpu": "3"},
		want:  []string{"cpu: \"3\"\n"},
		gone:  []string{"cpu: 100m\nmemory: 512Mi\n"},
	},
	"agent.logLevel":       {value: "debug", want: args("--log-level=debug")},
	"agent.logFormat":      {value: "json", want: args("--log-format=json")},
	"agent.extraArgs":      {value: []any{"--codec=s2"}, want: args("--codec=s2")},
	"agent.env":            {value: []any{vals{"name": "E"}}, want: []string{"- name: E\n"}},
	"agent.volumes":        {value: []any{vals{"name": "v"}}, want: []string{"- name: v\n"}},
	"agent.volumeMounts":   {value: []any{vals{"name": "m"}}, want: []string{"- name: m\n"}},
	"agent.podAnnotations": {value: vals{"a": "b"}, want: []string{"annotations:\na: b\n"}},
	"agent.podLabels":      {value: vals{"l": "m"}, want: []string{"l: m\n"}},
	"agent.serviceAccountAnnotations": {
		value: vals{"role": "r"},
		want:  []string{"annotations:\nrole: r\nname: diapause-agent\n"},
	},

	"controller.replicas":     {value: 3, want: []string{"replicas: 3\n"}},
	"controller.nodeSelector": {value: vals{"pool": "a"}, want: []string{"pool: a\n"}},
	"controller.tolerations":  {value: []any{vals{"key": "k"}}, want: []string{"- key: k\n"}},
	"controller.affinity":     {value: vals{"nodeAffinity": vals{}}, want: []string{"nodeAffinity: {}\n"}},
	"controller.priorityClassName": {
		value: "mine",
		want:  []string{"priorityClassName: mine\n", "- mine\n"},
		gone:  []string{"system-cluster-critical"},
	},
	"controller.disruptionBudget": {value: false, gone: []string{"kind: PodDisruptionBudget"}},
	"controller.requests":         {value: vals{"cpu": "3"}, want: []string{"cpu: \"3\"\n"}, gone: []string{"cpu: 20m\n"}},
	"controller.memoryLimit":      {value: "3Gi", want: []string{"memory: 3Gi\n"}, gone: []string{"memory: 1Gi\n"}},
	"controller.appArmor":         {value: true, want: []string{"appArmorProfile:\ntype: RuntimeDefault\n"}},
	"controller.logLevel":         {value: "debug", want: args("--log-level=debug")},
	"controller.logFormat":        {value: "json", want: args("--log-format=json")},
	"controller.extraArgs":        {value: []any{"--codec=s2"}, want: args("--codec=s2")},
	"controller.env":              {value: []any{vals{"name": "E"}}, want: []string{"- name: E\n"}},
	"controller.volumes":          {value: []any{vals{"name": "v"}}, want: []string{"- name: v\n"}},
	"controller.volumeMounts":     {value: []any{vals{"name": "m"}}, want: []string{"- name: m\n"}},
	"controller.podAnnotations":   {value: vals{"a": "b"}, want: []string{"annotations:\na: b\n"}},
	"controller.podLabels":        {value: vals{"l": "m"}, want: []string{"l: m\n"}},
	"controller.serviceAccountAnnotations": {
		value: vals{"role": "r"},
		want:  []string{"annotations:\nrole: r\nname: diapause-controller\n"},
	},

	"namespace.manage": {
		value: true,
		want:  []string{"kind: Namespace\n", "pod-security.kubernetes.io/enforce: privileged\n"},
	},
	"namespace.quota": {value: false, gone: []string{"kind: ResourceQuota\n"}},
	"crds.install": {
		value: false,
		gone:  []string{"kind: CustomResourceDefinition\n"},
		want:  []string{"crds.install is false"},
	},
	"runtimeClasses.diapause": {value: false, gone: []string{"handler: diapause\n"}},
	"runtimeClasses.gvisor":   {value: false, gone: []string{"handler: gvisor\n"}},
	"volumesPolicy": {
		value: false,
		gone:  []string{"kind: MutatingAdmissionPolicy\n"},
		want:  []string{"volumesPolicy is false"},
	},
	"networkPolicy.enabled": {
		value: false,
		gone:  []string{"kind: NetworkPolicy\n"},
		want:  []string{"networkPolicy.enabled is false"},
	},
	"networkPolicy.egress.restrict": {value: true, want: []string{
		"policyTypes:\n- Ingress\n- Egress\n", "- port: 53\nprotocol: UDP\n", "- port: 443\n", "- port: 6443\n",
	}},
	"networkPolicy.egress.ports": {
		value: []any{8443},
		with:  restricted,
		want:  []string{"- port: 8443\n"},
		gone:  []string{"- port: 443\n"},
	},
	"networkPolicy.egress.dnsPort": {
		value: 5353,
		with:  restricted,
		want:  []string{"- port: 5353\n"},
		gone:  []string{"- port: 53\n"},
	},
	"networkPolicy.egress.endpoints": {
		value: []any{vals{"cidr": "10.0.0.1/32", "ports": []any{3128}}}, with: restricted,
		want: []string{"cidr: 10.0.0.1/32\n", "- port: 3128\n"},
	},
	"monitoring.alerts": {
		value: true,
		want:  []string{"kind: PrometheusRule\n", "alert: DiapauseStoreRefuses\n"},
	},
	"monitoring.dashboard": {
		value: true,
		want:  []string{"grafana_dashboard: \"1\"\n", `"legendFormat": "{{reason}}"`},
	},
	"monitoring.podMonitor": {
		value: true, with: set("monitoring.proxyImage", "proxy:1"),
		want: []string{"kind: PodMonitor\n", "image: proxy:1\n", "- port: 9465\n"},
	},
	"monitoring.proxyImage": {
		value: "proxy:2",
		with:  set("monitoring", vals{"podMonitor": true, "proxyImage": "x"}),
		want:  []string{"image: proxy:2\n"},
	},
	"test.storageConfig": {
		value: "mine",
		want:  []string{"- --storage-config=mine\n"},
		gone:  []string{"- --storage-config=diapause-test\n", "kind: PodSnapshotStorageConfig\nmetadata:"},
	},
	"uninstall": {
		value: true,
		want:  []string{"name: diapause-uninstall\n"},
		gone:  []string{"kubectl.kubernetes.io/default-container"},
	},
}

const digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

var restricted = set("networkPolicy.egress.restrict", true)

// args are arguments as they are rendered.
func args(all ...string) (out []string) {
	for _, a := range all {
		out = append(out, "- "+a+"\n")
	}
	return out
}

// mounted is what a Secret takes to be used, as mode tells the agent's from the controller's.
func mounted(name, flag, secret string, mode int) []string {
	return []string{
		fmt.Sprintf("- --%s=/etc/diapause/%s\n", flag, name), fmt.Sprintf("mountPath: /etc/diapause/%s\n", name),
		fmt.Sprintf("defaultMode: %d\n", mode), fmt.Sprintf("secretName: %s\n", secret),
	}
}

// TestValues: each value of the chart does what it says.
func TestValues(t *testing.T) {
	paths := leaves(values(t, "values.yaml"), "")
	for _, path := range paths {
		if _, ok := effects[path]; !ok {
			t.Errorf("no test has the value %s", path)
		}
	}
	for path, e := range effects {
		t.Run(path, func(t *testing.T) {
			if !slices.Contains(paths, path) {
				t.Errorf("values.yaml has no %s", path)
			}
			before, said := release{}.render(t, e.with)
			after, says := release{}.render(t, merge(e.with, set(path, e.value)))
			only(t, "with the value", text(t, after)+says, text(t, before)+said, e.want)
			only(t, "without the value", text(t, before)+said, text(t, after)+says, e.gone)
			reaches(t, path, before, after)
		})
	}
}

// only checks that one text has all of want, and another none of it.
func only(t *testing.T, what, in, notIn string, want []string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(in, w) || strings.Contains(notIn, w) {
			t.Errorf("%q is rendered %s: %v; else: %v", w, what, strings.Contains(in, w), strings.Contains(notIn, w))
		}
	}
}

// reaches checks that a value changes the agents, or the controllers, or both, as its name says.
func reaches(t *testing.T, path string, before, after objects) {
	t.Helper()
	for id, prefixes := range map[string]string{
		"apps/v1 DaemonSet diapause-system diapause-agent": "agent. budgets. image. install. monitoring. " +
			"paths. proxy. store. uninstall",
		"apps/v1 Deployment diapause-system diapause-controller": "controller. image. monitoring. proxy. store.",
	} {
		want := slices.ContainsFunc(strings.Fields(prefixes), func(p string) bool { return strings.HasPrefix(path, p) })
		switch {
		case strings.HasSuffix(path, ".serviceAccountAnnotations"),
			path == "controller.disruptionBudget", path == "monitoring.alerts", path == "monitoring.dashboard":
			want = false
		case path == "store.credentials.controllerSecret":
			want = strings.Contains(id, "controller")
		case path == "store.credentials.agentSecret" || strings.HasPrefix(path, "store.signing."):
			want = strings.Contains(id, "agent")
		}
		if got := !reflect.DeepEqual(before[id], after[id]); got != want {
			t.Errorf("%s changes: %v, want %v", id, got, want)
		}
	}
}

// leaves returns the paths of all values. A mapping with a fixed set of keys is no value itself.
func leaves(v vals, prefix string) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		below, ok := v[name].(vals)
		if !ok || len(below) == 0 || name == "requests" {
			out = append(out, prefix+name)
			continue
		}
		out = append(out, leaves(below, prefix+name+".")...)
	}
	return out
}

// text is all that is rendered, in one form of YAML, without the spaces before lines.
func text(t *testing.T, all objects) string {
	t.Helper()
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(all)) {
		out, err := yaml.Marshal(all[id])
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			b.WriteString(strings.TrimLeft(line, " "))
		}
	}
	return b.String()
}

// TestLint: Helm finds nothing to complain about but the icon that is missing.
func TestLint(t *testing.T) {
	presets, err := filepath.Glob(filepath.Join(dir, "presets", "*.yaml"))
	if err != nil || len(presets) != 6 {
		t.Fatalf("%d presets, %v", len(presets), err)
	}
	for _, preset := range append(presets, "") {
		var v vals
		if preset != "" {
			v = values(t, filepath.Join("presets", filepath.Base(preset)))
		}
		for _, m := range lint.RunAll(dir, v, namespace).Messages {
			if !strings.Contains(m.Error(), "icon is recommended") {
				t.Errorf("%s: %v", filepath.Base(preset), m)
			}
		}
	}
}

// TestPresets: each preset is a set of values that the chart takes, and says whether it was tried.
func TestPresets(t *testing.T) {
	for name, want := range map[string][]string{
		"aks": {}, "gke": {}, "kubeadm": {"--restart=systemctl restart containerd"},
		"eks": {"--drop-in=/etc/containerd/config.d/diapause.toml"},
		"k3s": {
			"--restart=signal", "--containerd=/run/k3s/containerd/containerd.sock",
			"--drop-in=/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/diapause.toml",
		},
		"rke2": {
			"--restart=signal", "--containerd=/run/k3s/containerd/containerd.sock",
			"--drop-in=/var/lib/rancher/rke2/agent/etc/containerd/config-v3.toml.d/diapause.toml",
		},
	} {
		t.Run(name, func(t *testing.T) {
			preset := values(t, "presets/"+name+".yaml")
			all, _ := release{}.render(t, merge(preset, restricted))
			out := text(t, all)
			for _, arg := range args(want...) {
				if !strings.Contains(out, arg) {
					t.Errorf("no argument %q", arg)
				}
			}
		})
	}
}

// TestRefused: what is no value of the chart is refused, and the error names it.
func TestRefused(t *testing.T) {
	for path, e := range effects {
		names := strings.Split(path, ".")
		names[len(names)-1] = "unknown"
		refused(t, strings.Join(names, "."), 1, "'unknown' not allowed")
		if _, ok := e.value.(vals); !ok {
			refused(t, path, vals{"unknown": vals{}}, "/"+strings.ReplaceAll(path, ".", "/"))
		}
	}
	for path, wrong := range map[string]any{
		"agent.extraArgs": []any{"codec=s2"}, "agent.logLevel": "loud", "agent.logFormat": "xml",
		"agent.maxUnavailable": "many",
		"agent.nodeSelector":   vals{"pool": 1}, "agent.updateStrategy": "Recreate", "budgets.arena": "2Gi",
		"budgets.checkpointMemory": 0, "budgets.diskFloor": 100, "budgets.precopyTime": "2 minutes", "controller.replicas": 0,
		"image.digest": "sha256:1", "image.tag": "a b", "install.runsc": "slow", "paths.dropIn": "etc/d.toml",
		"paths.containerdSocket": "/run/c.sock", "paths.programs": "/",
		"store.orphanAge": "a day", "store.url": "tape://library/reel",
		"networkPolicy.egress.ports":     []any{70000},
		"networkPolicy.egress.endpoints": []any{vals{"cidr": "10.0.0.1/32"}},
		"image.pullPolicy":               "Sometimes",
	} {
		refused(t, path, wrong, "/"+strings.ReplaceAll(path, ".", "/"))
	}
}

// refused checks that a value is refused with an error that says all of want.
func refused(t *testing.T, path string, value any, want ...string) {
	t.Helper()
	_, err := release{}.files(t.Context(), set(path, value))
	if err == nil {
		t.Errorf("%s: %v is accepted", path, value)
		return
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v: the error does not say %q:\n%v", path, value, w, err)
		}
	}
}
