package e2e

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"diapause.dev/test/images"
)

// holding is the script of a container that has files of a volume open: one of which it has read the first line, and
// one without a name. Told to, it reads on in both.
const holding = `printf 'one\ntwo\n' > /shared/sub/lines; exec 3</shared/sub/lines; read first <&3
echo nameless > /shared/gone; exec 4</shared/gone; rm /shared/gone; touch /holding
while [ ! -e /go ]; do usleep 10000; done
read second <&3; read gone <&4; echo -n "$first $second $gone" > /read; exec sleep 100000`

// furnishing makes files of every kind in volumes that lie on the node.
const furnishing = `set -e; cd /part
echo -n x > plain; ln plain hard; ln -s plain soft; mkfifo pipe; mkdir -p deep/er
head -c 300000 /dev/urandom > bulk; dd if=/dev/zero of=holes bs=1 count=1 seek=50000000 2>/dev/null
chown 12:34 plain; chmod 6751 bulk; chmod 1777 deep; touch -d '2001-02-03 04:05:06' deep/er pipe
echo alone > /alone/mark; head -c 3000000 /dev/urandom > /memory/bulk; chmod 600 /alone/mark /memory/bulk`

// looking tells of all there is in them.
const looking = `for d in /part /alone /memory; do cd $d; echo $d
find . -type d -exec stat -c '%n %a %u:%g %y' {} + | sort; ` +
	`find . ! -type d -exec stat -c '%N %a %u:%g %h %s %y %F' {} + | sort
find . -type f | sort | xargs md5sum; done`

// TestVolumes freezes a pod with volumes that lie on the node, because its containers mount parts of them, or because
// it does not have them kept inside the sandbox. They are on the other node when it wakes there.
func TestVolumes(t *testing.T) {
	t.Parallel()
	w := begin(t)
	first := w.run(w.pod("web", on(w.Node(0)), w.parted("64Mi")))
	before := w.life(first)
	w.exec("web", "side", "sh", "-c", furnishing)
	w.write("web", "/plain/mark", "plain")
	w.exec("web", "holder", "sh", "-c", "[ -e /holding ]")
	want := w.exec("web", "side", "sh", "-c", looking)
	s := w.checkpoint(first)
	w.remove("web")

	again := w.run(w.pod("web", on(w.Node(1)), w.parted("64Mi")))
	w.restored(again, s.name, before)
	if got := w.exec("web", "side", "sh", "-c", looking); got != want {
		t.Errorf("the volumes have\n%s\nhad\n%s", got, want)
	}
	w.reads("web", "/plain/mark", "plain")
	w.reads("web", "/shared/init", "1")
	w.exec("web", "holder", "touch", "/go")
	if got := w.exec("web", "holder", "sh", "-c", "cat /read"); got != "one two nameless" {
		t.Errorf("open files say %q", got)
	}
	w.exec("web", "side", "sh", "-c", "echo -n beside > /part/mark")
	w.reads("web", "/shared/sub/mark", "beside")

	later := w.checkpoint(again)
	w.remove("web")
	w.restored(w.run(w.pod("web", on(w.Node(0)), w.parted("64Mi"))), later.name, before)
	w.reads("web", "/shared/sub/mark", "beside")
	w.remove("web")

	cold := w.run(w.pod("web", on(w.Node(1)), w.parted("1Mi")))
	w.cold(cold, before, "volume memory: no space left on device")
	if got := w.exec("web", "side", "sh", "-c", "ls /memory /alone; ls -A /part"); got != "/alone:\n\n/memory:\nlines\n" {
		t.Errorf("a pod that starts cold has %q in its volumes", got)
	}
	w.reads("web", "/shared/init", "1")
	w.must(w.client.Create(w.ctx, w.pod("fails", on(w.Node(1)), w.parted("1Mi"), from(later.name), orFail)))
	w.eventually("the refusal", func() error { return w.refusal("fails", "volume memory: no space left on device") })
}

// TestRootfsVolumesOnNode freezes the files of such a pod alone.
func TestRootfsVolumesOnNode(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.apply(rootfsPolicy(w.namespace))
	first := w.run(w.pod("web", on(w.Node(0)), w.parted("64Mi")))
	w.exec("web", "side", "sh", "-c", furnishing)
	want := w.exec("web", "side", "sh", "-c", "md5sum /part/bulk /alone/mark /memory/bulk")
	w.checkpoint(first)
	w.remove("web")
	w.run(w.pod("web", on(w.Node(1)), w.parted("64Mi")))
	if got := w.exec("web", "side", "sh", "-c", "md5sum /part/bulk /alone/mark /memory/bulk"); got != want {
		t.Errorf("the volumes have\n%s\nhad\n%s", got, want)
	}
	w.reads("web", "/shared/init", "2")
}

// parted makes a pod of the containers and volumes that [TestVolumes] is about; the one in memory has room for so much.
func (w *world) parted(room string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		limit := resource.MustParse(room)
		volume := func(name string, source corev1.EmptyDirVolumeSource) corev1.Volume {
			return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &source}}
		}
		p.Spec.Volumes = []corev1.Volume{
			volume("shared", corev1.EmptyDirVolumeSource{}), volume("alone", corev1.EmptyDirVolumeSource{}),
			volume("plain", corev1.EmptyDirVolumeSource{}),
			volume("memory", corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &limit}),
		}
		p.Annotations["dev.gvisor.spec.mount.plain.type"] = "bind" // and no more: it is left on the node
		shared := corev1.VolumeMount{Name: "shared", MountPath: "/shared"}
		shell := func(name, script string, mounts ...corev1.VolumeMount) corev1.Container {
			return corev1.Container{
				Name: name, Image: images.Busybox, Command: []string{"/bin/sh", "-c", script},
				VolumeMounts: mounts,
			}
		}
		p.Spec.InitContainers = []corev1.Container{
			shell("init", `mkdir -p /shared/sub; echo -n $(( $(cat /shared/init 2>/dev/null || echo 0) + 1 )) > /shared/init`,
				shared),
		}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{shared, {Name: "plain", MountPath: "/plain"}}
		p.Spec.Containers = append(p.Spec.Containers, shell("holder", holding, shared), shell("side", "sleep 100000",
			corev1.VolumeMount{Name: "shared", MountPath: "/part", SubPath: "sub"},
			corev1.VolumeMount{Name: "alone", MountPath: "/alone", SubPath: "some/where"},
			corev1.VolumeMount{Name: "memory", MountPath: "/memory", SubPath: "some"},
		))
	}
}
