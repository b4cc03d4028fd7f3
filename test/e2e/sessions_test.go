package e2e

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/test/images"
	"diapause.dev/test/tools"
)

//go:embed files
var files embed.FS

// sessionsImage has databases and Python with what reaches them, of Debian's packages, and the scripts of the directory
// files.
const sessionsImage = "localhost/sessions:1"

// imageCache is where images of Debian's packages are kept, and sessionsArchive the name there of the newest one.
const (
	imageCache      = "../../.cache/images"
	sessionsArchive = imageCache + "/sessions.tar"
)

// makeSessions makes the archive of the image, with the network of the machine.
func makeSessions(ctx context.Context) error {
	image := images.Debian{
		Name: sessionsImage, Files: make(map[string][]byte),
		Packages: []string{
			"postgresql-15", "mariadb-server-core", "redis-server", "python3-psycopg2", "python3-pymysql", "python3-websockets",
			"dash", "coreutils", "util-linux", "sed",
		},
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/usr/sbin", "PGTZ=UTC", "LC_ALL=C"},
	}
	all, err := fs.ReadDir(files, "files")
	if err != nil {
		return err
	}
	for _, f := range all {
		data, err := files.ReadFile("files/" + f.Name())
		if err != nil {
			return err
		}
		image.Files["prog/"+f.Name()] = data
	}
	if err := os.MkdirAll(imageCache, 0o755); err != nil {
		return err
	}
	archive, err := image.Archive(ctx, imageCache)
	if err != nil {
		return err
	}
	if err := os.Remove(sessionsArchive); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(filepath.Base(archive), sessionsArchive)
}

// sessionSleep is how long the servers of TestSessions sleep at least.
const sessionSleep = 10 * time.Second

// TestSessions has two servers sleep: PostgreSQL, while psql is inside a transaction, and one that holds a WebSocket.
// Meanwhile their node forgets their hardware addresses, as it does in time. Then both sessions go on, with what they
// had.
func TestSessions(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.must(w.Import(w.ctx, sessionsArchive))
	db := w.start(w.program("db", 0, "sh", "postgres.sh"))
	ws := w.start(w.program("ws", 0, "python3", "websocket_server.py"))
	psql := w.program("psql", 1, "sh", "transaction.sh", w.finish(db).Status.PodIP)
	socket := w.program("socket", 1, "python3", "websocket_client.py", w.finish(ws).Status.PodIP)
	w.finish(w.start(psql))
	w.finish(w.start(socket))
	w.says("psql", "before\n")
	w.says("socket", "1 before\n")

	w.sleeps("db", "one")
	w.sleeps("ws", "one")
	for end := time.Now().Add(sessionSleep); time.Now().Before(end); time.Sleep(time.Second) {
		w.well("db")
	}
	_, err := w.Node(0).Exec(w.ctx, tools.Busybox, "ip", "neigh", "flush", "dev", "cni0")
	w.must(err)
	w.well("db")
	w.well("ws")
	for _, client := range []string{"psql", "socket"} {
		w.exec(client, "", "touch", "/tmp/go")
	}
	w.says("psql", "before\nafter|t|t|3\ncommitted|2\n")
	w.says("socket", "1 before\n2 after\n")
	w.wakes("db", "packet")
	w.wakes("ws", "packet")
	for _, client := range []string{"psql", "socket"} {
		w.succeeds(client)
	}
}

// program is a pod on a node that runs a script of the image, and is not restarted.
func (w *world) program(name string, node int, interpreter, script string, args ...string) *corev1.Pod {
	return w.pod(name, on(w.Node(node)), func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyNever
		p.Spec.Containers[0].Image = sessionsImage
		p.Spec.Containers[0].Command = append([]string{interpreter, "/prog/" + script}, args...)
	})
}

// says waits until the log of a pod is a text.
func (w *world) says(pod, text string) {
	w.Helper()
	w.eventually("the log of "+pod, func() error {
		log, err := w.Client.CoreV1().Pods(w.namespace).GetLogs(pod, new(corev1.PodLogOptions)).DoRaw(w.ctx)
		if err == nil && string(log) != text {
			err = fmt.Errorf("it is %q, want %q", log, text)
		}
		return err
	})
}

// succeeds waits until all containers of a pod have ended with success.
func (w *world) succeeds(pod string) {
	w.Helper()
	w.eventually("the end of "+pod, func() error {
		if phase := w.get(pod).Status.Phase; phase != corev1.PodSucceeded {
			return fmt.Errorf("it is %s", phase)
		}
		return nil
	})
}

const webService = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: %s}
spec:
  selector: {app: workload}
  ports: [{port: 80, targetPort: 8080}]
`

// TestSleepBehindService: a SleepPolicy puts a pod to sleep. It stays an endpoint of its Service. A request to the
// Service, from a pod of the other node, wakes it and is answered.
func TestSleepBehindService(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.apply(fmt.Sprintf(webService, w.namespace))
	w.apply(fmt.Sprintf(sleepPolicy, w.namespace))
	p := w.run(w.pod("web", on(w.Node(0)), withProbes))
	other := func(p *corev1.Pod) {
		p.Labels["app"] = "client"
		p.Spec.Containers[0].Image, p.Spec.Containers[0].Command = images.Busybox, []string{"/bin/sleep", "infinity"}
	}
	w.run(w.pod("client", on(w.Node(1)), other))
	before := w.life(p)
	service := new(corev1.Service)
	w.must(w.client.Get(w.ctx, client.ObjectKey{Namespace: w.namespace, Name: "web"}, service))
	for range 2 {
		w.must(until(w.ctx, func() error { return w.condition("web", corev1.ConditionTrue, "") }))
		began := time.Now()
		out := w.kubectl("exec", "client", "--", "wget", "-qO-", "http://"+service.Spec.ClusterIP+":80/state")
		t.Logf("answered within %v, of which much is kubectl", time.Since(began))
		if !strings.Contains(out, before.Boot) {
			t.Errorf("the Service has answered %q, want life %s", out, before.Boot)
		}
		w.wakes("web", "packet")
	}
	w.whole(p, before)
}
