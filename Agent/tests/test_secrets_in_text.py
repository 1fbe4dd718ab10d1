"""Tests of `secrets_in_text`: what is found, what is not, and that no text makes the search slow."""

import time

import pytest

from Agent.base.secrets_in_text import find_cookies, find_credentials, mask, secret_shape

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
        assert secret_shape(f"id-{JWT}") == "JSON Web Token"

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


RANDOM = "q7Zk2Vb9Xw4Lm1Tn8Rc5Yd3Hf6Gj0PsAaBbCcDdEeFfGgHhIiJj"

SHAPES = {
    "Alibaba Cloud access key": "LTAI5t" + RANDOM[:18],
    "Tencent Cloud secret id": "AKID" + RANDOM[:32],
    "Azure client secret": "abc8Q~" + RANDOM[:34],
    "Azure access key": "AccountKey=" + (RANDOM * 2)[:86] + "==",
    "Telegram Bot Token": "123456789:" + RANDOM[:35],
    "AWS Access Key": "AKIA" + "Q7ZK2VB9XW4LM1TN",
    "GitHub token": "ghp_" + RANDOM[:36],
    "GitLab Token": "glrt-" + RANDOM[:20],
    "Google API key": "AIza" + RANDOM[:35],
    "Stripe Access Key": "rk_live_" + RANDOM[:24],
    "Discord Bot Token": f"M{RANDOM[:23]}.{RANDOM[:6]}.{RANDOM[:27]}",
    "Slack token": "xoxb-1234567890-" + RANDOM[:24],
    "API key": "sk-proj-" + RANDOM[:30],
}


class TestShapes:
    @pytest.mark.parametrize("kind", SHAPES)
    def test_providers_keys_are_found_and_masked(self, kind: str) -> None:
        said = f"export KEY={SHAPES[kind]} # 生产环境"

        assert secret_shape(said) in (kind, "API key")  # one of two names that both fit
        assert SHAPES[kind] not in mask(said)
        assert mask(said).endswith("# 生产环境")

    @pytest.mark.parametrize(
        "url",
        [
            "postgresql://app:h4nter-2@db.internal:5432/app", "mysql+pymysql://root:Zr9!x@10.0.0.1/x",
            "mongodb+srv://u:p4ssW0rd@c.mongodb.net", "redis://:q7Zk2Vb9@cache:6379/0", "amqp://a:s3cretive@mq",
        ],
    )  # fmt: skip
    def test_passwords_of_database_urls_are_found(self, url: str) -> None:
        assert secret_shape(f"connect to {url} first") == "password in a URL"

    def test_a_bearer_token_is_found(self) -> None:
        assert secret_shape(f"Authorization: Bearer {RANDOM[:24]}") == "bearer token"

    @pytest.mark.parametrize(
        "said",
        [
            "postgresql://user:password@localhost/db", "postgresql://USER:<password>@host", "https://u:${PASSWORD}@host",
            "sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxx", "Authorization: Bearer YOUR_ACCESS_TOKEN_GOES_HERE", "LTAI",
            "knowledge-20260305-a1b2c3d4e5f6", "c4b3dff0a1b2c3d4e5f60718293a4b5c6d7e8f90", "http://[::1]:8790/api/x",
            "/usr/lib/python3.11/site-packages/detect_secrets", "2026-03-05T12:00:00.123456+00:00", "git@github.com:a",
            "550e8400-e29b-41d4-a716-446655440000", "https://example.com:8080/x?a=1@b", "AccountKey=...",
            "APPLICATION12",
        ],
    )  # fmt: skip
    def test_what_is_no_secret_is_left(self, said: str) -> None:
        assert secret_shape(said) == ""
        assert mask(said) == said

    def test_a_key_is_found_wherever_a_long_line_has_it(self) -> None:
        for before in (0, 1_000, 1_470, 1_499, 2_950, 10_007):
            assert secret_shape("a" * before + " " + SHAPES["AWS Access Key"]) == "AWS Access Key"


HOSTILE = [
    "-eyJ", "eyJ", ".eyJ", "eyJaaaaaaaa.", "eyJaaaaaaaa.eyJaaaaaaaa.", "-----BEGIN ", f"{PEM}\n", f"{PEM} A: ", "sk-",
    "SG.", "xox", "kh_", "pypi-", "a", "a-", " ", "\n", "password", "password ", "password: ", 'password"', "password'",
    "password = is", "token_", "api key", "密码", "密码是 ", "cookie:", "cookie: ", "set-cookie", "://", "://a", "://a:",
    " -u ", " -u a:", "aws key ", "bearer ", "bearer aaaaaaaaaaaaaaaaaaaaa ", "SK", "12345678:", "xoxb-1-", "glagent-1",
    "M1234567890123456789012345.", "AccountKey=1", "https://hooks.slack.com/services/T1/B1/", "1Q~",
    "-ua", '"', "'", "=", "\\",
]  # fmt: skip


@pytest.mark.parametrize("piece", HOSTILE)
def test_no_text_takes_long(piece: str) -> None:
    """Of 24 KB; what grows with the square of a text takes far longer for it, and nothing else runs meanwhile."""
    text = piece * (24_576 // len(piece))
    for hostile in (text, f"password{text}", f"{PEM}{text}", f"cookie{text}"):
        began = time.thread_time()
        secret_shape(hostile)
        find_credentials(hostile)
        find_cookies(hostile)
        mask(hostile)
        assert time.thread_time() - began < 1
