package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"diapause.dev/test/bed"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func startAPI(t *testing.T) (context.Context, *bed.API) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	a, err := bed.StartAPI(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Close()
		if t.Failed() {
			t.Log(a.Server.Log())
		}
	})
	return ctx, a
}

func TestAPI(t *testing.T) {
	ctx, a := startAPI(t)
	t.Run("makes pods", func(t *testing.T) { makePod(ctx, t, a) })
	t.Run("asks who one is", func(t *testing.T) { authorize(ctx, t, a) })
	t.Run("validates", func(t *testing.T) { validate(ctx, t, a) })
	t.Run("keeps its data", func(t *testing.T) { restartServer(ctx, t, a) })
}

// TestAPIAgain shows that a second API begins with nothing.
func TestAPIAgain(t *testing.T) {
	ctx, a := startAPI(t)
	pods, err := a.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil || len(pods.Items) > 0 {
		t.Errorf("there are pods from before: %v, %v", pods.Items, err)
	}
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
}

func makePod(ctx context.Context, t *testing.T, a *bed.API) {
	p, err := a.Client.CoreV1().Pods("default").Create(ctx, pod("first"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if p.Spec.ServiceAccountName != "default" {
		t.Errorf("its service account is %q", p.Spec.ServiceAccountName)
	}
	out, err := a.Kubectl(ctx, "get", "pod", "first", "--output=name")
	if err != nil || out != "pod/first\n" {
		t.Errorf("kubectl: %q, %v", out, err)
	}
}

func authorize(ctx context.Context, t *testing.T, a *bed.API) {
	stranger := clientOf(t, rest.AnonymousClientConfig(a.Config))
	if _, err := stranger.CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("one without a certificate: %v", err)
	}
	token, err := a.Client.CoreV1().ServiceAccounts("default").CreateToken(ctx, "default",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(a.Config)
	config.BearerToken = token.Status.Token
	who, err := clientOf(t, config).AuthenticationV1().SelfSubjectReviews().Create(ctx,
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || who.Status.UserInfo.Username != "system:serviceaccount:default:default" {
		t.Errorf("one with a token is %v, %v", who, err)
	}
	if _, err := clientOf(t, config).CoreV1().Secrets("default").List(ctx,
		metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("secrets for a service account with no role: %v", err)
	}
}

func clientOf(t *testing.T, c *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

const policy = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.bed.test}
spec:
  group: bed.test
  names: {kind: Thing, plural: things}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {size: {type: integer, maximum: 3}}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-evil-pods}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  validations: [{expression: "!object.metadata.name.startsWith('evil-')", message: "this name is not for pods"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-evil-pods}
spec: {policyName: no-evil-pods, validationActions: [Deny]}
`

func validate(ctx context.Context, t *testing.T, a *bed.API) {
	if err := a.Apply(ctx, policy); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Kubectl(ctx, "wait", "--for=condition=Established", "crd/things.bed.test"); err != nil {
		t.Fatal(err)
	}
	err := a.Apply(ctx, "{apiVersion: bed.test/v1, kind: Thing, metadata: {name: large}, size: 4}")
	if err == nil || !strings.Contains(err.Error(), "less than or equal to 3") {
		t.Errorf("a thing against its schema: %v", err)
	}
	evil := pod("")
	evil.GenerateName = "evil-"
	eventually(ctx, t, func() error { // the policy holds a little later than it is there
		_, err := a.Client.CoreV1().Pods("default").Create(ctx, evil, metav1.CreateOptions{})
		if err == nil || !strings.Contains(err.Error(), "this name is not for pods") {
			return fmt.Errorf("a pod against a policy: %w", err)
		}
		return nil
	})
}

func restartServer(ctx context.Context, t *testing.T, a *bed.API) {
	a.Server.Kill()
	if err := a.Server.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Client.CoreV1().Pods("default").Get(ctx, "first", metav1.GetOptions{}); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}
