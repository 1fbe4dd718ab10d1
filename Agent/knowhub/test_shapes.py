"""Tests of `shapes`: what is found, what is not, and that no text makes the looking take long."""

import time

import pytest

from Agent.knowhub.shapes import find_cookies, find_credentials, secret_shape

PASSWORD = "SecurePass123"
PEM = "-----BEGIN RSA " + "PRIVATE KEY-----"
END = "-----END RSA " + "PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0In0." + "c2lnbmF0dXJl"


class TestCredentials:
    @pytest.mark.parametrize(
        "said",
        [
            f'"password": "{PASSWORD}"', f"password='{PASSWORD}'", f"password={PASSWORD}",
            f"password: {PASSWORD}, then", f"DB_PASSWORD={PASSWORD}", f"AWS_SECRET_ACCESS_KEY={PASSWORD}",
            f"client_secret: {PASSWORD}",
            f"accessToken = `{PASSWORD}`", f"api key is {PASSWORD}.", f"the password {PASSWORD} works",
            f"Authorization: Basic {PASSWORD}", f"authorization: Bearer {PASSWORD}",
            f"-H 'Authorization: token {PASSWORD}'", f"https://ada:{PASSWORD}@host/x", f"curl -u ada:{PASSWORD} x",
            f"curl --user=ada:{PASSWORD} x",
            f"密码是 {PASSWORD}，然后登录", f"令牌：{PASSWORD}。", f"口令为{PASSWORD}", f"passwd:{PASSWORD};",
        ],
    )  # fmt: skip
    def test_are_found_by_what_stands_before_them(self, said: str) -> None:
        assert find_credentials(f"It said {said}\nand then it worked") == [PASSWORD]

    def test_a_comma_within_one_belongs_to_it(self) -> None:
        assert find_credentials("password: Se,curePass123") == ["Se,curePass123"]

    @pytest.mark.parametrize("body", ["MIIEabc+/=\n", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES,0A1B\n\nMIIEabc\n"])
    def test_a_private_key_is_found_whole_and_where_it_breaks_off(self, body: str) -> None:
        assert find_credentials(f"key:\n{PEM}\n{body}{END}\ndone.") == [f"{PEM}\n{body}{END}"]
        assert find_credentials(f"key:\n{PEM}\n{body}") == [f"{PEM}\n{body}".strip()]

    def test_a_web_token_is_found_whole(self) -> None:
        assert find_credentials(f"it answered {JWT}, so") == [JWT]
        assert secret_shape(f"id-{JWT}") == "a JSON web token"

    @pytest.mark.parametrize(
        "said",
        [
            "the password manager opens", "the token issued yesterday expired", "a secret is", "pwd", "{{secret:a/b}}",
            "https://example.com/a:b", "password: abc", "tail -u x",
        ],
    )  # fmt: skip
    def test_what_gives_nothing_away_is_left(self, said: str) -> None:
        assert find_credentials(said) == []

    def test_cookies(self) -> None:
        said = 'GET /\nCookie: a=1; b=2\nSet-Cookie: c=3\n"cookie": "d=4",\ncurl -H \'Cookie: e=5\'\ncookie: none'

        assert find_cookies(said) == ["a=1; b=2", "c=3", "d=4", "e=5"]


HOSTILE = [
    "-eyJ", "eyJ", ".eyJ", "eyJaaaaaaaa.", "eyJaaaaaaaa.eyJaaaaaaaa.", "-----BEGIN ", f"{PEM}\n", f"{PEM} A: ", "sk-",
    "SG.", "xox", "kh_", "pypi-", "a", "a-", " ", "\n", "password", "password ", "password: ", 'password"', "password'",
    "password = is", "token_", "api key", "密码", "密码是 ", "cookie:", "cookie: ", "set-cookie", "://", "://a", "://a:",
    " -u ", " -u a:", "-ua", '"', "'", "=", "\\",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_no_text_takes_long(piece: str) -> None:
    """Of 256 KB; what grows with the square of a text takes minutes for it, and nothing else runs meanwhile."""
    text = piece * (262_144 // len(piece))
    for hostile in (text, f"password{text}", f"{PEM}{text}", f"cookie{text}"):
        began = time.thread_time()
        secret_shape(hostile)
        find_credentials(hostile)
        find_cookies(hostile)
        assert time.thread_time() - began < 3
