package install

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"diapause.dev/cri"
)

func options(t *testing.T) Options {
	t.Helper()
	return Options{
		Host: t.TempDir(), Programs: t.TempDir(), Dir: "/opt/diapause",
		Config: "/etc/containerd/config.toml", DropIn: "/etc/containerd/conf.d/diapause.toml",
		Socket: "/run/containerd/containerd.sock", Handlers: []string{"diapause", "gvisor"},
		Flags: DefaultFlags(), Logger: slog.New(slog.DiscardHandler),
	}
}

// dropIn writes files of the host, and returns the resulting drop-in.
func dropIn(t *testing.T, o Options, files map[string]string) table {
	t.Helper()
	for path, content := range files {
		write(t, o.host(path), content, 0o644)
	}
	main, err := o.readMain()
	if err != nil {
		t.Fatal(err)
	}
	data, err := o.dropIn(main)
	if err != nil {
		t.Fatal(err)
	}
	again, err := o.dropIn(main)
	if err != nil || string(again) != string(data) {
		t.Fatalf("the same configuration gave two drop-ins, %v:\n%s\n%s", err, data, again)
	}
	var out table
	if _, err := toml.Decode(string(data), &out); err != nil {
		t.Fatalf("%v in\n%s", err, data)
	}
	return out
}

// at returns the value at a path of tables.
func at(t *testing.T, from table, path ...string) any {
	t.Helper()
	var v any = from
	for _, p := range path {
		next, ok := v.(table)
		if !ok || next[p] == nil {
			t.Fatalf("nothing at %q in %v", path, from)
		}
		v = next[p]
	}
	return v
}

func TestDropInVersion3(t *testing.T) {
	o := options(t)
	got := dropIn(t, o, map[string]string{o.Config: "version = 3\nimports = " +
		"['/etc/containerd/conf.d/*.toml']\n[plugins.'io.containerd.cri.v1.runtime']\nx = 1\n"})
	for _, h := range o.Handlers {
		at := func(key ...string) any {
			return at(t, got, append([]string{"plugins", pluginV3, "containerd", "runtimes", h}, key...)...)
		}
		if at("runtime_type") != cri.RuntimeType || at("runtime_path") != "/opt/diapause/bin/containerd-shim-diapause-v1" ||
			at("options", "ConfigPath") != "/opt/diapause/runsc.toml" || len(at("pod_annotations").([]any)) != len(annotations) {
			t.Errorf("handler %s: %v", h, at())
		}
	}
	if v := at(t, got, "version"); v != int64(3) {
		t.Errorf("version %v", v)
	}
	if _, repeated := at(t, got, "plugins", pluginV3).(table)["x"]; repeated {
		t.Error("the drop-in repeats what containerd merges by itself")
	}
}

// TestDropInVersion2: the drop-in has the version of the main file, and the plugin that this version knows.
func TestDropInVersion2(t *testing.T) {
	o := options(t)
	got := dropIn(t, o, map[string]string{o.Config: "version = 2\nimports = ['conf.d/*.toml']\n" +
		"[plugins.'io.containerd.grpc.v1.cri']\nx = 1\n"})
	for _, h := range o.Handlers {
		at(t, got, "plugins", pluginV2, "containerd", "runtimes", h, "runtime_path")
	}
	if v := at(t, got, "version"); v != int64(2) {
		t.Errorf("version %v", v)
	}
	if _, repeated := at(t, got, "plugins", pluginV2).(table)["x"]; repeated {
		t.Error("the drop-in repeats what containerd merges by itself")
	}
}

func TestReadMainSaysWhatToWrite(t *testing.T) {
	for name, tc := range map[string]struct {
		config string
		kind   error
		want   []string
	}{
		"missing": {
			"", errNoImport,
			[]string{
				"/etc/containerd/config.toml", "does not exist", "version = 3",
				`imports = ["/etc/containerd/conf.d/*.toml"]`,
			},
		},
		"no imports": {
			"version = 3\n", errNoImport,
			[]string{`imports = ["/etc/containerd/conf.d/*.toml"]`, "above its first [table]"},
		},
		"other imports": {
			"version = 2\nimports = ['/etc/other/*.toml']\n", errNoImport,
			[]string{`imports = ["/etc/other/*.toml", "/etc/containerd/conf.d/*.toml"]`},
		},
		"version 1": {"[plugins]\n", nil, []string{"version 0", "containerd config migrate"}},
		"no TOML":   {"version = \n", nil, []string{"/etc/containerd/config.toml"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t)
			serveVersion(t, o, "v2.4.2")
			if tc.config != "" {
				write(t, o.host(o.Config), tc.config, 0o644)
			}
			_, err := o.readMain()
			if err == nil || tc.kind != nil && !errors.Is(err, tc.kind) {
				t.Fatalf("got %v, want kind %v", err, tc.kind)
			}
			for _, w := range tc.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v\ndoes not say %q", err, w)
				}
			}
			if again := Install(t.Context(), o); again == nil || again.Error() != err.Error() {
				t.Errorf("the installation says %v, want %v", again, err)
			}
			wantNothing(t, o)
		})
	}
}

func TestServes(t *testing.T) {
	shall := options(t).handler()
	more := shall
	more.PodAnnotations = append([]string{"example.com/*"}, more.PodAnnotations...)
	if !serves(shall, shall) || !serves(more, shall) {
		t.Error("a handler does not serve that should")
	}
	for name, change := range map[string]func(*cri.Handler){
		"type":        func(h *cri.Handler) { h.Type = "io.containerd.runsc.v1" },
		"path":        func(h *cri.Handler) { h.Path = "" },
		"annotations": func(h *cri.Handler) { h.PodAnnotations = h.PodAnnotations[1:] },
		"options":     func(h *cri.Handler) { h.Options = nil },
	} {
		h := shall
		if change(&h); serves(h, shall) {
			t.Errorf("a handler of another %s serves", name)
		}
	}
}

func TestValidate(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"relative directory": func(o *Options) { o.Dir = "opt" },
		"all of the host":    func(o *Options) { o.Dir = "/" },
		"unclean drop-in":    func(o *Options) { o.DropIn = "/etc/../x.toml" },
		"no handlers":        func(o *Options) { o.Handlers = nil },
		"runc":               func(o *Options) { o.Handlers = []string{"runc"} },
		"no name":            func(o *Options) { o.Handlers = []string{"a b"} },
	} {
		o := options(t)
		if change(&o); o.validate() == nil {
			t.Errorf("%s: valid", name)
		}
	}
	if err := options(t).validate(); err != nil {
		t.Error(err)
	}
}

func TestRestarter(t *testing.T) {
	o := options(t)
	o.Host = "/"
	for how, wants := range map[string]bool{RestartNone: false, RestartSignal: true, "true": true} {
		if f, err := o.Restarter(how); err != nil || (f != nil) != wants {
			t.Errorf("Restarter(%q) = %v, %v", how, f != nil, err)
		}
	}
	if _, err := o.Restarter(" "); err == nil {
		t.Error("nothing was taken for a way to restart")
	}
}

func TestRunOnHost(t *testing.T) {
	file := filepath.Join(t.TempDir(), "made")
	for command, ok := range map[string]bool{"touch " + file: true, "false": false, "no-such-program": false} {
		err := runOnHost(context.WithoutCancel(t.Context()), "/", strings.Fields(command))
		if (err == nil) != ok {
			t.Errorf("%s: %v", command, err)
		}
	}
	read(t, file)
}
