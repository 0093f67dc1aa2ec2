// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// certificateSecret returns a Secret like those in which cert-manager keeps certificates.
func certificateSecret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels:      map[string]string{"controller.cert-manager.io/fao": "true"},
			Annotations: map[string]string{"cert-manager.io/certificate-name": name},
		},
		Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{corev1.TLSCertKey: []byte("certificate"), corev1.TLSPrivateKeyKey: []byte("key"), "ca.crt": []byte("authority")},
	}
}

// nextKeySecret returns a Secret like those in which cert-manager keeps the key of a certificate that is being issued.
func nextKeySecret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{"controller.cert-manager.io/fao": "true", "cert-manager.io/next-private-key": "true"},
		},
		Data: map[string][]byte{corev1.TLSPrivateKeyKey: []byte("key")},
	}
}

// accountKeySecret returns a Secret like those in which cert-manager keeps the key of an account of ACME.
func accountKeySecret(namespace, name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app.kubernetes.io/managed-by": certManager}},
		Data:       map[string][]byte{corev1.TLSPrivateKeyKey: []byte("key")},
	}
}

// secretsLab is an API server with the channel of certificates, whose accounts an attacker has the tokens of.
type secretsLab struct {
	addonLab
	controller, injector, webhook kubernetes.Interface
}

// newSecretsLab returns a lab with namespace shop, which has Secrets that are not cert-manager's.
func newSecretsLab(t *testing.T) secretsLab {
	t.Helper()
	l := newAddonLab(t, "certificates.yaml")
	s := secretsLab{
		addonLab:   l,
		controller: l.apiOf(certManager, certManager),
		injector:   l.apiOf(certManager, certManager+"-cainjector"),
		webhook:    l.apiOf(certManager, certManager+"-webhook"),
	}
	_, err := l.api.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	l.check(err)
	for _, secret := range []*corev1.Secret{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "database"}, Data: map[string][]byte{"password": []byte("hunter2")}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "slipway-addonrevision-base.1"}, Type: "slipway.dev/addon-revision"},
		{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "own-certificate"}, Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{corev1.TLSCertKey: nil, corev1.TLSPrivateKeyKey: nil},
		},
	} {
		_, err := l.api.CoreV1().Secrets(secret.Namespace).Create(t.Context(), secret, metav1.CreateOptions{})
		l.check(err)
	}

	return s
}

// TestCertManagerWritesOnlyCertificates: with the token of cert-manager's controller, Secrets can be written in the form of
// certificates and their keys alone, in no system namespace, and none that is not cert-manager's can be changed or deleted. Without
// the policy this was seen to succeed, also with the Secret of a token of an administrator, and the record of an add-on, which a
// rollback applies.
func TestCertManagerWritesOnlyCertificates(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	l := newSecretsLab(t)
	create := func(api kubernetes.Interface, secret *corev1.Secret) error {
		_, err := api.CoreV1().Secrets(secret.Namespace).Create(t.Context(), secret, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	l.await("the policy is in force", func() error {
		if err := create(l.controller, certificateSecret("kube-system", "metrics")); !refused(err) {
			return cmp.Or(err, errors.New("a Secret in kube-system is not refused"))
		}

		return nil
	})

	for what, secret := range map[string]*corev1.Secret{
		"a certificate":             certificateSecret("shop", "shop-tls"),
		"a key of a certificate":    nextKeySecret("shop", "shop-tls-abcde"),
		"a key of an account":       accountKeySecret(certManager, "lets-encrypt-account"),
		"a key of an issuer's":      accountKeySecret("shop", "lets-encrypt-account"),
		"a certificate of all keys": changedSecret(certificateSecret("shop", "shop-tls"), withFormats),
	} {
		if err := create(l.controller, secret); err != nil {
			t.Errorf("cert-manager cannot write %s: %v", what, err)
		}
	}
	l.check(create(l.webhook, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: certManager, Name: certManager + "-webhook-ca",
			Annotations: map[string]string{"cert-manager.io/allow-direct-injection": "true"},
		},
		Data: map[string][]byte{corev1.TLSCertKey: nil, corev1.TLSPrivateKeyKey: nil, "ca.crt": nil},
	}))
	for what, secret := range hostileSecrets() {
		if err := create(l.controller, secret); !refused(err) {
			t.Errorf("cert-manager's controller can write %s: %v", what, err)
		}
		secret.Namespace = certManager
		if err := create(l.webhook, secret); !refused(err) {
			t.Errorf("cert-manager's webhook can write %s: %v", what, err)
		}
	}
	l.checkSecretsOfOthers()
}

// changedSecret returns a Secret after a change.
func changedSecret(s *corev1.Secret, change func(*corev1.Secret)) *corev1.Secret {
	change(s)

	return s
}

// withFormats adds what cert-manager writes for other formats of keys.
func withFormats(s *corev1.Secret) {
	for _, key := range []string{"tls-combined.pem", "key.der", "keystore.jks", "truststore.jks", "keystore.p12", "truststore.p12"} {
		s.Data[key] = nil
	}
}

// hostileSecrets are Secrets that cert-manager does not write, and with which its account would get more rights.
func hostileSecrets() map[string]*corev1.Secret {
	return map[string]*corev1.Secret{
		"a token of another account": changedSecret(certificateSecret("shop", "x"), func(s *corev1.Secret) {
			s.Type, s.Annotations = corev1.SecretTypeServiceAccountToken, map[string]string{corev1.ServiceAccountNameKey: "default", "cert-manager.io/certificate-name": "x"}
		}),
		"credentials of a registry": changedSecret(certificateSecret("shop", "x"), func(s *corev1.Secret) {
			s.Type, s.Data = corev1.SecretTypeDockerConfigJson, map[string][]byte{corev1.DockerConfigJsonKey: []byte("{}")}
		}),
		"a password":                   {ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "x"}, Data: map[string][]byte{"password": nil}},
		"a password next to a key":     changedSecret(nextKeySecret("shop", "x"), func(s *corev1.Secret) { s.Data["password"] = nil }),
		"a password with certificates": changedSecret(certificateSecret("shop", "x"), func(s *corev1.Secret) { s.Data["password"] = nil }),
		"a certificate of no issuer":   changedSecret(certificateSecret("shop", "x"), func(s *corev1.Secret) { s.Labels = nil }),
		"a record of an add-on": changedSecret(certificateSecret("kube-system", "slipway-addonrevision-base.2"), func(s *corev1.Secret) {
			s.Type = "slipway.dev/addon-revision"
		}),
		"a token of a new machine": changedSecret(certificateSecret("kube-system", "bootstrap-token-abcdef"), func(s *corev1.Secret) {
			s.Type = corev1.SecretTypeBootstrapToken
		}),
		"a certificate in kube-system": certificateSecret("kube-system", "metrics"),
		"a certificate in kube-public": certificateSecret("kube-public", "x"),
	}
}

// checkSecretsOfOthers: Secrets that are not cert-manager's stay as they are.
func (l secretsLab) checkSecretsOfOthers() {
	l.Helper()
	ctx := l.Context()
	for _, of := range []types.NamespacedName{
		{Namespace: "shop", Name: "database"}, {Namespace: "shop", Name: "own-certificate"}, {Namespace: "kube-system", Name: "slipway-addonrevision-base.1"},
	} {
		secrets := l.controller.CoreV1().Secrets(of.Namespace)
		mark := []byte(`{"metadata": {"labels": {"controller.cert-manager.io/fao": "true", "cert-manager.io/next-private-key": "true"}}, "data": {"tls.key": "eA=="}}`)
		if _, err := secrets.Patch(ctx, of.Name, types.MergePatchType, mark, metav1.PatchOptions{}); !refused(err) {
			l.Errorf("cert-manager's controller can change Secret %s: %v", of, err)
		}
		if err := secrets.Delete(ctx, of.Name, metav1.DeleteOptions{}); !refused(err) {
			l.Errorf("cert-manager's controller can delete Secret %s: %v", of, err)
		}
		if err := secrets.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			l.Errorf("cert-manager's controller can delete all Secrets of %s: %v", of.Namespace, err)
		}
	}

	// Its own: a certificate is renewed, and the key of one that was issued is deleted. The certificate stays, as upstream says.
	_, err := l.controller.CoreV1().Secrets("shop").Create(ctx, certificateSecret("shop", "shop-tls"), metav1.CreateOptions{})
	l.check(err)
	_, err = l.controller.CoreV1().Secrets("shop").Patch(ctx, "shop-tls", types.MergePatchType, []byte(`{"data": {"tls.key": "eA=="}}`), metav1.PatchOptions{})
	l.check(err)
	if err := l.controller.CoreV1().Secrets("shop").Delete(ctx, "shop-tls", metav1.DeleteOptions{}); !refused(err) {
		l.Errorf("cert-manager's controller can delete a certificate: %v", err)
	}
	_, err = l.controller.CoreV1().Secrets("shop").Create(ctx, nextKeySecret("shop", "shop-tls-abcde"), metav1.CreateOptions{})
	l.check(err)
	l.check(l.controller.CoreV1().Secrets("shop").Delete(ctx, "shop-tls-abcde", metav1.DeleteOptions{}))
}

// TestCertManagersRightsEndHere has what the accounts of cert-manager can read and change beyond the policy, as docs/security.md says
// it: the controller reads all Secrets, and the injector changes the configurations of cert-manager's own webhook. The rest is
// refused. The injector was seen to read all Secrets, and to change all webhooks.
func TestCertManagersRightsEndHere(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	l := newSecretsLab(t)
	ctx := t.Context()
	other := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	_, err := l.api.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, other, metav1.CreateOptions{})
	l.check(err)
	_, err = l.api.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, &admissionv1.MutatingWebhookConfiguration{ObjectMeta: other.ObjectMeta}, metav1.CreateOptions{})
	l.check(err)

	// What remains.
	secrets, err := l.controller.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
	l.check(err)
	for _, secret := range secrets.Items {
		if secret.Namespace == metav1.NamespaceSystem && !strings.HasPrefix(string(secret.Type), "slipway.dev/addon-") {
			t.Errorf("docs/security.md does not say that kube-system has Secret %s of type %s", secret.Name, secret.Type)
		}
	}
	hooks := func(api kubernetes.Interface, name string) (validating, mutating error) {
		patch := []byte(`{"metadata": {"labels": {"x": "y"}}}`)
		_, validating = api.AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		_, mutating = api.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})

		return validating, mutating
	}
	validating, mutating := hooks(l.injector, certManager+"-webhook")
	l.check(errors.Join(validating, mutating))

	for account, api := range map[string]kubernetes.Interface{"controller": l.controller, "webhook": l.webhook, "injector": l.injector} {
		for what, attempt := range l.attemptsOfAccount(api) {
			if what == "read the Secrets of a namespace" && account == "controller" {
				continue
			}
			if err := attempt(ctx); !apierrors.IsForbidden(err) {
				t.Errorf("cert-manager's %s can %s: %v", account, what, err)
			}
		}
		if validating, mutating := hooks(api, "other"); !apierrors.IsForbidden(validating) || !apierrors.IsForbidden(mutating) {
			t.Errorf("cert-manager's %s can change other webhooks: %v, %v", account, validating, mutating)
		}
	}
}

// attemptsOfAccount are what no account of cert-manager may do.
func (l secretsLab) attemptsOfAccount(api kubernetes.Interface) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"read the Secrets of a namespace": func(ctx context.Context) error {
			_, err := api.CoreV1().Secrets("shop").Get(ctx, "database", metav1.GetOptions{})
			return err
		},
		"create a webhook": func(ctx context.Context) error {
			_, err := api.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, &admissionv1.MutatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: "new"},
			}, metav1.CreateOptions{})

			return err
		},
		"delete the policy": func(ctx context.Context) error {
			return api.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, "cert-manager-secrets", metav1.DeleteOptions{})
		},
		"change the configuration of cert-manager": func(ctx context.Context) error {
			_, err := api.CoreV1().ConfigMaps(certManager).Patch(ctx, certManager, types.MergePatchType, []byte(`{"data": {"x": ""}}`), metav1.PatchOptions{})
			return err
		},
		"read a custom kind's definition": func(ctx context.Context) error {
			return api.Discovery().RESTClient().Get().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").Do(ctx).Error()
		},
	}
}
