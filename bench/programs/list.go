package programs

import (
	"embed"
	"strconv"
	"time"

	"diapause.dev/test/images"
)

// Inside is the path, in every image, of the program of package inside.
const Inside = "usr/local/bin/inside"

const (
	inside  = "/" + Inside
	pathEnv = "PATH=/usr/local/bin:/usr/bin:/usr/sbin"
	// mathEnv keeps numpy from a thread for each processor, which do nothing here.
	mathEnv = "OPENBLAS_NUM_THREADS=1"
)

// waitTime is a little more than gVisor keeps a connection in TIME_WAIT.
const waitTime = 65 * time.Second

//go:embed files
var files embed.FS

// file returns a file that goes into an image.
func file(name string) []byte {
	data, err := files.ReadFile("files/" + name)
	if err != nil {
		panic(err) // it is embedded, or the name is wrong
	}
	return data
}

// all are the programs, in the order of the table.
var all = []*Program{
	redis(),
	postgres(),
	numpy("numpy", 200),
	{
		Name: "node",
		Image: images.Debian{
			Name: "localhost/bench-node:1", Packages: []string{"nodejs"},
			Files: map[string][]byte{"prog/server.js": file("server.js")},
		},
		Command: []string{"/usr/bin/node", "/prog/server.js"},
		Dial:    overHTTP("8080", false),
	},
	server("go", "--mib=64"),
	{
		Name: "jvm",
		Image: images.Debian{
			Name: "localhost/bench-jvm:1", Packages: []string{"openjdk-17-jdk-headless"},
			Files: map[string][]byte{"prog/Server.java": file("Server.java")},
		},
		Command: []string{
			"/usr/lib/jvm/java-17-openjdk-amd64/bin/java", "-Xms256m", "-Xmx256m", "-XX:+UseG1GC", "-XX:-UsePerfData",
			"/prog/Server.java",
		},
		Dial: overHTTP("8080", false),
	},
	{
		Name: "sqlite",
		Image: images.Debian{
			Name: "localhost/bench-sqlite:1", Packages: []string{"python3"},
			Files: map[string][]byte{"prog/sqlite.py": file("sqlite.py")}, Env: []string{pathEnv},
		},
		Command: []string{inside, "bridge", "/usr/bin/python3", "/prog/sqlite.py"},
		Dial:    overHTTP("8080", false),
	},
	{
		Name: "nginx",
		Image: images.Debian{
			Name: "localhost/bench-nginx:1", Packages: []string{"nginx-light", "dash"},
			Files: map[string][]byte{"prog/nginx.conf": file("nginx.conf")}, Env: []string{pathEnv},
		},
		Command: []string{"/bin/sh", "-c", inside + " serve & exec /usr/sbin/nginx -c /prog/nginx.conf -g 'daemon off;'"},
		Dial:    overHTTP("80", true),
		Warm:    waitTime,
	},
	{
		Name: "jupyter",
		Image: images.Debian{
			Name: "localhost/bench-jupyter:1", Packages: []string{"python3-ipykernel", "python3-jupyter-client"},
			Files: map[string][]byte{"prog/jupyter.py": file("jupyter.py")},
			Env:   []string{pathEnv, "HOME=/tmp"},
		},
		Command: []string{inside, "bridge", "/usr/bin/python3", "/prog/jupyter.py"},
		Dial:    overHTTP("8080", false),
	},
	{
		Name: "shell",
		Image: images.Debian{
			Name: "localhost/bench-shell:1", Packages: []string{"bash", "coreutils", "sed", "gcc", "libc6-dev"},
			Files: map[string][]byte{"prog/shell.sh": file("shell.sh")}, Env: []string{pathEnv},
		},
		Command: []string{inside, "bridge", "/bin/bash", "/prog/shell.sh"},
		Dial:    overHTTP("8080", false),
	},
	{
		Name: "chromium",
		Image: images.Debian{
			Name: "localhost/bench-chromium:1", Packages: []string{"chromium", "fonts-dejavu-core"},
			Files: map[string][]byte{"prog/page.html": file("page.html")},
			Env:   []string{pathEnv, "HOME=/tmp"},
		},
		Command: []string{
			inside, "chromium", "/usr/lib/chromium/chromium", "--headless", "--no-sandbox", "--disable-gpu",
			"--disable-dev-shm-usage", "--user-data-dir=/tmp/profile", "file:///prog/page.html",
		},
		Dial: overHTTP("8080", false),
	},
	server("threads", "--threads=200"),
	server("files", "--files=50000"),
	server("timewait", "--timewait=3000"),
	numpy("numpy4g", 4096),
}

// numpy is Python with so many MiB in an array.
func numpy(name string, mib int) *Program {
	return &Program{
		Name: name,
		Image: images.Debian{
			Name: "localhost/bench-numpy:1", Packages: []string{"python3-numpy"},
			Files: map[string][]byte{"prog/array.py": file("array.py")}, Env: []string{pathEnv, mathEnv},
		},
		Command: []string{inside, "bridge", "/usr/bin/python3", "/prog/array.py"},
		Env:     map[string]string{"MIB": strconv.Itoa(mib)},
		Dial:    overHTTP("8080", false),
		Large:   mib > 1024,
	}
}

// server is a server in Go with burdens.
func server(name string, flags ...string) *Program {
	return &Program{
		Name:    name,
		Image:   images.Debian{Name: "localhost/bench-go:1", Packages: []string{"base-files"}},
		Command: append([]string{inside, "serve"}, flags...),
		Dial:    overHTTP("8080", false),
	}
}
